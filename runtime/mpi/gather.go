package mpi

import (
	"context"
	"encoding/binary"
	"encoding/json"
)

// Gather returns on rank 0 what each rank gives, in the order of ranks, and nil on the others. It is sent as JSON.
func Gather[T any](ctx context.Context, w *World, own T) ([]T, error) {
	b, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	if w.Rank() > 0 {
		return nil, w.sendSized(ctx, 0, b)
	}
	all := make([]T, w.Size())
	for from := range all {
		if from > 0 {
			if b, err = w.recvSized(ctx, from); err != nil {
				return nil, err
			}
		}
		if err := json.Unmarshal(b, &all[from]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// broadcast returns rank 0's bytes on all ranks.
func (w *World) broadcast(ctx context.Context, b []byte) ([]byte, error) {
	if w.Rank() > 0 {
		return w.recvSized(ctx, 0)
	}
	for to := 1; to < w.Size(); to++ {
		if err := w.sendSized(ctx, to, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (w *World) sendSized(ctx context.Context, to int, b []byte) error {
	if err := w.Send(ctx, to, helloTag, binary.LittleEndian.AppendUint64(nil, uint64(len(b)))); err != nil {
		return err
	}
	return w.Send(ctx, to, helloTag, b)
}

func (w *World) recvSized(ctx context.Context, from int) ([]byte, error) {
	n := make([]byte, 8)
	if err := w.Recv(ctx, from, helloTag, n); err != nil {
		return nil, err
	}
	b := make([]byte, binary.LittleEndian.Uint64(n))
	return b, w.Recv(ctx, from, helloTag, b)
}
