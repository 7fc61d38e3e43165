package runtime

import (
	"onering/models"
	"onering/models/ports"
)

// normSessions run the final norm on the rows [n,D] that predict response tokens.
// The norm also divides by the sampling temperature.
type normSessions struct {
	forward, backward  *Binding // backward is nil with ScoreOnly
	inverseTemperature buffer
	dx                 buffer // the gradient of the norm's input
}

// openNorm loads the Programs of the norm.
func (l *Learner) openNorm() error {
	forward, backward, err := l.ring.Arch.Norm()
	if err != nil {
		return err
	}
	l.norm = &normSessions{inverseTemperature: hostBuffer(models.F32), dx: l.env.buffer(models.F32)}
	if l.norm.forward, err = l.env.loadBinding(forward); err != nil {
		return err
	}
	if err := l.bindWeights(l.norm.forward, ""); err != nil || l.options.ScoreOnly {
		return err
	}
	if l.norm.backward, err = l.env.loadBinding(backward); err != nil {
		return err
	}
	return l.bindWeights(l.norm.backward, "")
}

// runForward makes h the norm of x.
func (s *normSessions) runForward(x *Value, h *buffer, temperature float64) error {
	b := binder{b: s.forward}
	b.in(ports.Stream, x, nil)
	s.bindTemperature(&b, temperature)
	v, err := h.of(x.shape...)
	b.out(ports.Normed, v, err)
	return b.run()
}

// runBackward returns dL/dx, given dL/dh.
func (s *normSessions) runBackward(x, dh *Value, temperature float64) (*Value, error) {
	b := binder{b: s.backward}
	b.in(ports.Stream, x, nil)
	s.bindTemperature(&b, temperature)
	b.in(ports.NormedGrad, dh, nil)
	dx, err := s.dx.of(x.shape...)
	b.out(ports.StreamGradOut, dx, err)
	return dx, b.run()
}

// bindTemperature binds 1/temperature.
func (s *normSessions) bindTemperature(b *binder, temperature float64) {
	if inverse := fill[float32](b, ports.InverseTemperature, &s.inverseTemperature); inverse != nil {
		inverse[0] = float32(1 / temperature)
	}
}

func (s *normSessions) close() {
	closeSessions(s.forward, s.backward)
	closeBuffers(&s.inverseTemperature, &s.dx)
}
