package decoder

// The prefixes of running gradients and of their sums.
const (
	GradientPrefix = gradientPrefix
	UpdatedPrefix  = updatedPrefix
)
