"""The tests, and in `support` what several of them need: models, cases, and the machinery that runs them."""
