package graphtest

// Derivative returns df/dx by central differences of fourth order; f must read *x, which
// Derivative restores. For smooth f of the order of 1 the error is about 1e-10.
func Derivative(f func() float64, x *float64) float64 {
	const h = 2e-4
	at := *x
	defer func() { *x = at }()
	y := func(step float64) float64 {
		*x = at + step*h
		return f()
	}
	return (8*(y(1)-y(-1)) - (y(2) - y(-2))) / (12 * h)
}

// Dot is the sum of the products of the elements of tensors with equal names in both.
func Dot(a, b map[string]Tensor) (s float64) {
	for name, t := range a {
		if u, ok := b[name]; ok {
			for i, v := range t.Data {
				s += v * u.Data[i]
			}
		}
	}
	return s
}
