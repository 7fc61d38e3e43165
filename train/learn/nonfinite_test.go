package learn

import (
	"errors"
	"fmt"
	"testing"

	"onering/runtime"
)

// TestGradientError: only gradients that are not finite, or whose squares overflow, make
// a step's error one about NaN or infinity. The error of a lost device stays unchanged.
func TestGradientError(t *testing.T) {
	for _, other := range []error{runtime.ErrLost, errors.New("a rank is gone"), errors.New("out of memory")} {
		if err := gradientError(fmt.Errorf("computing: %w", other)); !errors.Is(err, other) {
			t.Errorf("%v became %v", other, err)
		}
	}
	for tensor, want := range map[string]string{
		"lm_head.weight": "the gradient of lm_head.weight at element 7 is +Inf; nothing was updated",
		"":               "the norm of the gradients is +Inf: all are finite, but their squares overflow float32; nothing was updated",
	} {
		err := gradientError(&runtime.NotFiniteError{What: "gradient", Tensor: tensor, Index: 7, Value: float32(inf)})
		var met *NonfiniteError
		if !errors.As(err, &met) || met.Tensor != tensor || err.Error() != want {
			t.Errorf("%q: %v", tensor, err)
		}
	}
}
