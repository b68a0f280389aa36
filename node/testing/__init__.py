"""What tests of applications use: planted failures, and a pytest plug-in."""
