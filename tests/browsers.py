"""Under which names a browser that can draw a page without a screen may be installed."""

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
