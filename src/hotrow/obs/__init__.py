"""What a run says about itself while it runs, and the page that is left of it."""
