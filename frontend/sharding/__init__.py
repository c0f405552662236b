"""What is made of models that several processes train: wrapped modules, and states by names."""
