package decoder

// These are the prefixes of running gradients and of their sums.
const (
	GradientPrefix = gradientPrefix
	UpdatedPrefix  = updatedPrefix
)
