"""What tests of applications use: failures that are planted in actors."""
