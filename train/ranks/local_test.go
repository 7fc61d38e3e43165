package ranks

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// Messages of a pair of ranks with one tag keep their order, tags do not mix, and an
// unexpected length is an error.
func TestLocal(t *testing.T) {
	w := Local(2)
	ctx := context.Background()
	go func() {
		for i := range 3 {
			w[0].Send(ctx, 1, 7, []byte{byte(i)})
		}
	}()
	go w[0].Send(ctx, 1, 8, []byte("other"))
	other := make([]byte, 5)
	if err := w[1].Recv(ctx, 0, 8, other); err != nil || string(other) != "other" {
		t.Fatalf("%q, %v", other, err)
	}
	one := make([]byte, 1)
	for i := range 2 {
		if err := w[1].Recv(ctx, 0, 7, one); err != nil || one[0] != byte(i) {
			t.Fatalf("message %d: %v, %v", i, one, err)
		}
	}
	if err := w[1].Recv(ctx, 0, 7, other); err == nil || !strings.Contains(err.Error(), "sent 1 bytes") {
		t.Errorf("another length: %v", err)
	}
	if err := w[1].Send(ctx, 1, 0, one); err == nil {
		t.Error("a message to oneself is taken")
	}
}

// The first Abort ends all calls, with its message. If a rank leaves or a context ends,
// the calls that wait for it end.
func TestLocalEnds(t *testing.T) {
	w := Local(3)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w[0].Recv(ctx, 1, 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx ended: %v", err)
	}
	if err := w[2].Close(); err != nil {
		t.Error(err)
	}
	if err := w[0].Recv(context.Background(), 2, 0, nil); err == nil || !strings.Contains(err.Error(), "rank 2 has left") {
		t.Errorf("rank left: %v", err)
	}
	w[1].Abort(errors.New("first"))
	w[0].Abort(errors.New("second"))
	if err := w[0].Send(context.Background(), 1, 0, nil); err == nil || err.Error() != "rank 1 ended the run: first" {
		t.Errorf("aborted: %v", err)
	}
}
