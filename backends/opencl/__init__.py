"""The OpenCL backend: the loop IR as OpenCL C, on any device that has a driver."""
