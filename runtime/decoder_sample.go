package runtime

import (
	"fmt"

	"onering/models"
)

// A sampler runs the Sample Programs on rows of hidden states.
type sampler struct {
	temperature float32
	topP        float32
	topK        int
	choice      models.Choice

	sessions      map[sampleKind]*Binding
	hidden        scratch[float32]
	uniforms      scratch[float32]
	next          scratch[int64]
	logp, entropy scratch[float32]
	short         scratch[float32]
	invT, p, norm scratch[float32]
	k             scratch[int64]
}

type sampleKind struct {
	choice models.Choice
	form   models.Form
}

// firstK is how many of the largest probabilities top-p looks at first. Where
// they hold too little, the step is sampled again with eight times as many.
const firstK = 512

// SetSampling fixes how the following calls sample; see sampler.Decoder.
func (s *sampler) SetSampling(temperature, topP float64, topK int, greedy bool) error {
	switch {
	case !(temperature > 0):
		return fmt.Errorf("runtime: temperature %g is not above 0; greedy decoding is a choice of its own", temperature)
	case !(topP > 0 && topP <= 1):
		return fmt.Errorf("runtime: top_p %g is not in (0, 1]", topP)
	case topK < 0:
		return fmt.Errorf("runtime: top_k %d is negative; 0 turns it off", topK)
	}
	s.temperature, s.topP, s.topK = float32(temperature), float32(topP), topK
	switch {
	case greedy:
		s.choice = models.Greedy
	case topK > 0 || topP < 1:
		s.choice = models.Filter
	default:
		s.choice = models.Draw
	}
	return nil
}

// sample runs on the first n rows of s.hidden.
func (s *sampler) sample(d *Decoder, n int, uniforms []float32, next []int32, logp, entropy []float32) error {
	if s.temperature == 0 {
		return fmt.Errorf("runtime: call SetSampling before sampling")
	}
	kind := sampleKind{s.choice, d.form(n)}
	binding := s.sessions[kind]
	if binding == nil {
		p, err := d.ring.Arch.Sample(kind.choice, kind.form)
		if err != nil {
			return err
		}
		session, err := d.env.Load(p)
		if err != nil {
			return err
		}
		if binding, err = session.NewBinding(); err == nil {
			err = d.ring.bind(binding, "")
		}
		if err != nil {
			session.Close()
			return err
		}
		if s.sessions == nil {
			s.sessions = make(map[sampleKind]*Binding)
		}
		s.sessions[kind] = binding
	}
	rows := int64(n)
	b := binder{b: binding}
	_, v, err := s.hidden.of(rows, int64(d.geometry.Hidden))
	b.in("hidden", v, err)
	inv, v, err := s.invT.of()
	b.in("inv_temperature", v, err)
	if s.choice != models.Greedy {
		u, v, err := s.uniforms.of(rows)
		b.in("uniforms", v, err)
		copy(u, uniforms)
	}
	ids, v, err := s.next.of(rows)
	b.out("next", v, err)
	lp, v, err := s.logp.of(rows)
	b.out("logp", v, err)
	ent, v, err := s.entropy.of(rows)
	b.out("entropy", v, err)
	if b.err != nil {
		return b.err
	}
	inv[0] = 1 / s.temperature
	if s.choice == models.Filter {
		err = s.filter(&b, d.geometry.Vocab, n)
	} else {
		err = b.run()
	}
	if err != nil {
		return err
	}
	for i, id := range ids {
		next[i] = int32(id)
	}
	copy(logp, lp)
	copy(entropy, ent)
	return nil
}

// filter runs with as many of the largest probabilities as top-k and top-p need.
func (s *sampler) filter(b *binder, vocab, n int) error {
	top, v, err := s.p.of()
	b.in("top_p", v, err)
	norm, v, err := s.norm.of()
	b.in("renormalize", v, err)
	k, v, err := s.k.of(1)
	b.in("k", v, err)
	short, v, err := s.short.of(int64(n))
	b.out("short", v, err)
	if b.err != nil {
		return b.err
	}
	top[0], norm[0], k[0] = s.topP, 0, int64(min(firstK, vocab))
	if s.topK > 0 {
		norm[0], k[0] = 1, int64(min(s.topK, vocab))
	}
	for {
		if err := b.run(); err != nil {
			return err
		}
		enough := true
		for _, x := range short {
			enough = enough && x == 0
		}
		if enough || s.topK > 0 || int(k[0]) == vocab {
			return nil
		}
		k[0] = min(8*k[0], int64(vocab))
	}
}

func (s *sampler) close() {
	for _, b := range s.sessions {
		session := b.s
		b.Close()
		session.Close()
	}
	s.sessions = nil
	for _, x := range []*scratch[float32]{&s.hidden, &s.uniforms, &s.logp, &s.entropy, &s.short, &s.invT, &s.p, &s.norm} {
		x.close()
	}
	s.next.close()
	s.k.close()
}
