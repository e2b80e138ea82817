"""Sites as arrays: many episodes at once, one decision per arriving task. Seeds decide everything."""
