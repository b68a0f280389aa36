from noise.backends.default.backend import DefaultNoiseBackend

noise_backend: DefaultNoiseBackend
