package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"time"
)

// A Link has the measurements between two neighbouring ranks.
type Link struct {
	From int `json:"from"`
	To   int `json:"to"`
	// Latency is half the time for 8 bytes there and back, in microseconds.
	Latency float64 `json:"latency_us"`
	// Bandwidth is measured with messages of 8 MiB in one direction, in 1e9 bytes a second.
	Bandwidth float64 `json:"gigabytes_per_second"`
	// Ring is the bandwidth from From to To while every rank sends to the next one, as in the reduction of gradients.
	Ring float64 `json:"ring_gigabytes_per_second"`
}

const (
	measureTag   = 10002
	measureBytes = 8 << 20
	measureFor   = 300 * time.Millisecond // time to measure each bandwidth, roughly
)

// Measure measures the links between neighbouring ranks, one after the other and then all
// at once. All ranks call it; rank 0 gets the links in order, the others nil.
func (w *World) Measure(ctx context.Context) ([]Link, error) {
	size, rank := w.Size(), w.Rank()
	if size < 2 {
		return nil, nil
	}
	m := meter{w, ctx, nil}
	own := Link{From: rank, To: (rank + 1) % size}
	for from := range size {
		switch rank {
		case from:
			own.Latency, own.Bandwidth = m.lead(own.To)
		case (from + 1) % size:
			m.follow(from)
		}
	}
	own.Ring = m.ring()
	if m.err != nil {
		return nil, m.err
	}
	return Gather(ctx, w, own)
}

// A meter keeps the first error.
type meter struct {
	w   *World
	ctx context.Context
	err error
}

func (m *meter) send(to int, b []byte) {
	if m.err == nil {
		m.err = m.w.Send(m.ctx, to, measureTag, b)
	}
}

func (m *meter) recv(from int, b []byte) {
	if m.err == nil {
		m.err = m.w.Recv(m.ctx, from, measureTag, b)
	}
}

// Numbers of pings that are measured, and of those before, which make connections.
const pings, warmUps = 200, 20

// lead measures the link to a rank that calls follow at the same time: the latency by pings, then the bandwidth by as
// many large messages in a row as take about measureFor. It tells the other rank their number.
func (m *meter) lead(to int) (latency, bandwidth float64) {
	small, large := make([]byte, 8), make([]byte, measureBytes)
	var began time.Time
	for i := range warmUps + pings {
		if i == warmUps {
			began = time.Now()
		}
		m.send(to, small)
		m.recv(to, small)
	}
	latency = time.Since(began).Seconds() / (2 * pings) * 1e6
	var one time.Duration
	for range 2 { // the first message allocates memory
		began = time.Now()
		m.send(to, large)
		m.recv(to, small)
		one = time.Since(began)
	}
	n := min(max(int(measureFor/max(one, 1)), 1), 200) // max(one, 1): a message may take less than the clock shows
	m.send(to, binary.LittleEndian.AppendUint64(nil, uint64(n)))
	began = time.Now()
	for range n {
		m.send(to, large)
	}
	m.recv(to, small)
	return latency, float64(n) * measureBytes / time.Since(began).Seconds() / 1e9
}

// follow answers the measurements of another rank, message by message as lead sends them.
func (m *meter) follow(from int) {
	small, large := make([]byte, 8), make([]byte, measureBytes)
	for range warmUps + pings {
		m.recv(from, small)
		m.send(from, small)
	}
	for range 2 {
		m.recv(from, large)
		m.send(from, small)
	}
	m.recv(from, small) // the number of messages, which lead chooses
	for n := binary.LittleEndian.Uint64(small); n > 0 && m.err == nil; n-- {
		m.recv(from, large)
	}
	m.send(from, small)
}

// ring measures the link to the next rank while all ranks send: it receives from the previous rank meanwhile.
func (m *meter) ring() (bandwidth float64) {
	const n = 20 // messages
	size, rank := m.w.Size(), m.w.Rank()
	next, previous := (rank+1)%size, (rank+size-1)%size
	sent := make(chan error)
	began := time.Now()
	go func() {
		sender := meter{m.w, m.ctx, m.err} // with an error of its own, for two goroutines
		b := make([]byte, measureBytes)
		for range n {
			sender.send(next, b)
		}
		sent <- sender.err
	}()
	b := make([]byte, measureBytes)
	for range n {
		m.recv(previous, b)
	}
	m.err = errors.Join(m.err, <-sent)
	return n * measureBytes / time.Since(began).Seconds() / 1e9
}
