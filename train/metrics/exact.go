package metrics

import (
	"encoding/json"
	"fmt"
	"math"
)

// Exact floats keep every bit in JSON. NaN and the infinities, which JSON lacks,
// are the strings "NaN", "+Inf" and "-Inf".
type Exact []float64

// MarshalJSON implements json.Marshaler.
func (x Exact) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, v := range x {
		if i > 0 {
			out = append(out, ',')
		}
		if nonfinite(v) {
			out = fmt.Appendf(out, "%q", fmt.Sprint(v))
		} else {
			text, _ := json.Marshal(v)
			out = append(out, text...)
		}
	}
	return append(out, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (x *Exact) UnmarshalJSON(text []byte) error {
	var values []any
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	*x = make(Exact, len(values))
	for i, v := range values {
		switch v {
		case "NaN":
			(*x)[i] = math.NaN()
		case "+Inf":
			(*x)[i] = math.Inf(1)
		case "-Inf":
			(*x)[i] = math.Inf(-1)
		default:
			n, ok := v.(float64)
			if !ok {
				return fmt.Errorf("element %d is %v: want a number, \"NaN\", \"+Inf\" or \"-Inf\"", i, v)
			}
			(*x)[i] = n
		}
	}
	return nil
}
