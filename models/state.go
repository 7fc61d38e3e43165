package models

// A State is a tensor that a decoder's cache keeps of each row. The Programs that decode
// have a port with its Use.
type State struct {
	Use
	Type DType
	// Shape has the sizes of a row: of Keys and Values [G,K], with the tokens between them,
	// of Window and Memory all.
	Shape []int
}

// Grows reports whether a row has an element of Shape for each token.
func (s State) Grows() bool { return s.Role == Keys || s.Role == Values }

// Elements is how many elements a row has that has room for so many tokens.
func (s State) Elements(tokens int) int {
	n := 1
	for _, size := range s.Shape {
		n *= size
	}
	if s.Grows() {
		n *= tokens
	}
	return n
}

// Dims are the sizes of so many rows with room for so many tokens.
func (s State) Dims(rows, tokens int) []int64 {
	d := []int64{int64(rows)}
	for i, size := range s.Shape {
		if i == 1 && s.Grows() {
			d = append(d, int64(tokens))
		}
		d = append(d, int64(size))
	}
	return d
}

// RowBytes is how many bytes a row of the cache takes that has room for so many tokens.
func (g Geometry) RowBytes(tokens int) (n int64) {
	for _, s := range g.States {
		n += int64(s.Elements(tokens) * s.Type.Size())
	}
	return n
}

// WindowTokens is how many tokens a convolution needs before a new one; 0 if there is none.
func (g Geometry) WindowTokens() int {
	for _, s := range g.States {
		if s.Role == Window {
			return s.Shape[0]
		}
	}
	return 0
}
