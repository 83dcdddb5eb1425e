"""From raw images and captions to a data folder: plan, worker threads, files that can be continued."""
