"""The tests. This file lets no other package of this name win that an installed distribution brings (sagemaker 3)."""
