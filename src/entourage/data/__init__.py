"""Reading of images, sounds, features, labels and data sets."""
