package learn

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"onering/models"
	"onering/runtime"
)

var inf = math.Inf(1)

// A NonfiniteError says where NaN or an infinity was found. Nothing was updated.
type NonfiniteError struct {
	// What names the value that was not finite, such as "the log-prob of response token
	// 3", and the value.
	What  string
	Value float64
	// Tensor of the model that it was found in; empty where it is not of one.
	Tensor string
	// Cause is the origin as far as it is known: a tensor, a layer.
	Cause string
	// Sequences are the numbers of the sequences with the value; empty if it is in a sum
	// over all. Among says what the numbers count: "sequences of the batch", unless a
	// caller changes both.
	Sequences []int
	Among     string
	// Elsewhere is the message of the rank that found the value, if that is another one.
	Elsewhere string
}

// Error says what is not finite, in which sequences, and the cause as far as it is known.
func (e *NonfiniteError) Error() string {
	if e.Elsewhere != "" {
		return e.Elsewhere
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %v", e.What, e.Value)
	if n := len(e.Sequences); n > 0 {
		list := e.Sequences[:min(n, 8)]
		fmt.Fprintf(&b, " (in %d %s: %s", n, e.Among, strings.Trim(fmt.Sprint(list), "[]"))
		if n > len(list) {
			b.WriteString(" ...")
		}
		b.WriteString(")")
	}
	if e.Cause != "" {
		b.WriteString(": " + e.Cause)
	}
	b.WriteString("; nothing was updated")
	return b.String()
}

// nonfinite says whether x is NaN or an infinity.
func nonfinite(x float64) bool { return x-x != 0 }

// finiteTable looks for NaN and infinities in figures by sequence and token: in the given
// sequences, or in all if rows is nil.
func finiteTable(what string, table [][]float64, rows []int) error {
	var found *NonfiniteError
	all := len(table)
	if rows != nil {
		all = len(rows)
	}
	for i := range all {
		if rows != nil {
			i = rows[i]
		}
		if pos := slices.IndexFunc(table[i], nonfinite); pos >= 0 {
			if found == nil {
				found = &NonfiniteError{What: fmt.Sprintf("%s of response token %d", what, pos), Value: table[i][pos], Among: "sequences of the batch"}
			}
			found.Sequences = append(found.Sequences, i)
		}
	}
	if found == nil {
		return nil // not an error that holds a nil pointer
	}
	return found
}

// Check returns a *NonfiniteError where a score is not finite. kind is put before
// the name of the figure, such as "sampled ".
func (x Scores) Check(kind string) error { return x.finite(kind, nil) }

// finite is Check of the given sequences, or of all where rows is nil.
func (x Scores) finite(kind string, rows []int) error {
	if err := finiteTable("the "+kind+"log-prob", x.LogProb, rows); err != nil {
		return err
	}
	return finiteTable("the "+kind+"entropy", x.Entropy, rows)
}

// Check returns a *NonfiniteError where the loss or a derivative is not finite.
func (x Loss) Check() error {
	if err := finiteTable("the objective's weight", x.LogProb, nil); err != nil {
		return err
	}
	if err := finiteTable("the objective's weight of the entropy", x.Entropy, nil); err != nil {
		return err
	}
	if nonfinite(x.Value) {
		return &NonfiniteError{What: "the loss", Value: x.Value, Cause: "the objective's weights are finite"}
	}
	return nil
}

// gradientError turns an error of the gradients' norm into a *NonfiniteError. It returns
// other errors unchanged.
func gradientError(err error) error {
	at, ok := errors.AsType[*runtime.NotFiniteError](err)
	switch {
	case !ok:
		return err
	case at.Tensor == "":
		return &NonfiniteError{What: "the norm of the gradients", Value: inf, Cause: "all are finite, but their squares overflow float32"}
	}
	return &NonfiniteError{What: fmt.Sprintf("the %s of %s at element %d", at.What, at.Tensor, at.Index), Tensor: at.Tensor, Value: float64(at.Value)}
}

// CheckWeights names the first weight that is not finite.
func CheckWeights(w *models.Weights) error {
	finite := true
	w.Each(func(_ int, part []float32) { finite = finite && allFinite(part) })
	if finite {
		return nil
	}
	return runtime.NotFinite("weight", w)
}

// allFinite is fast where everything is finite.
func allFinite(x []float32) bool {
	for len(x) > 0 {
		n := min(len(x), 1<<12)
		sum := float32(0)
		for _, v := range x[:n] {
			sum += v - v // 0, or NaN from the first value that is not finite
		}
		if sum != 0 {
			return false
		}
		x = x[n:]
	}
	return true
}
