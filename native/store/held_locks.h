// The locked descriptors of this process. A lock (flock or F_OFD_SETLK) belongs to an open file, which a fork shares:
// a forked child closes its copies at once, so that a child that lives on does not keep a dead owner's file locked.
#pragma once

namespace hotrow::store {

void remember_lock(int descriptor);
void forget_lock(int descriptor);

}  // namespace hotrow::store
