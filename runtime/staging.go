package runtime

import (
	"errors"
	"fmt"
	"maps"
	"unsafe"

	"onering/models/ports"
)

// A staging moves what the host keeps of an Optimizer to the device and back: in each
// update every part goes up, is updated there and comes down again. Where the device
// copies beside what it computes, one part goes up while another is computed and a third
// comes down.
type staging struct {
	memory  *memory
	streams Streams              // inTurn where one copy is made after the other
	locked  [][]byte             // what the device reaches by itself
	slots   []map[string]*buffer // by port, where a part lies on the device
}

// stagedAtOnce is how many elements a part has at most that is staged, where its shape
// does not matter: enough that its copies take longer than their start, and few enough
// that all slots take little memory.
const stagedAtOnce = 8 << 20

// stagingSlots is how many parts are on the device at once where it copies beside what it
// computes.
const stagingSlots = 3

// The marks of a slot, each slot having as many.
const (
	markUp = iota
	markComputed
	markDown
	marksOfSlot
)

// inTurn are Streams of a device that copies nothing beside what it computes: what is
// begun is complete.
type inTurn struct{ *memory }

func (inTurn) Lock([]byte) error     { return nil }
func (inTurn) Unlock([]byte)         {}
func (inTurn) Mark(_, _ int) error   { return nil }
func (inTurn) Follow(_, _ int) error { return nil }
func (inTurn) Settle() error         { return nil }

func (t inTurn) Begin(stream int, device unsafe.Pointer, host []byte) error {
	if stream == StreamUp {
		return t.Upload(device, unsafe.Pointer(unsafe.SliceData(host)), len(host))
	}
	return t.Download(unsafe.Pointer(unsafe.SliceData(host)), device, len(host))
}

// open prepares for parts that the host keeps in ranges of its memory, which it locks: all
// or none. Where the device cannot reach these by itself, copies go the slower way, and
// Notice is told.
func (s *staging) open(e *Env, kept [][]byte) {
	var err error
	slots := 1
	if streams, ok := e.memory.Driver.(Streams); ok && !e.memory.Cuts() && len(kept) > 0 {
		s.streams, slots = streams, stagingSlots
		for _, part := range kept {
			if err = streams.Lock(part); err != nil {
				err = fmt.Errorf("%.2f GB: %w", 1e-9*float64(len(part)), e.memory.Check(err))
				break
			}
			s.locked = append(s.locked, part)
		}
	}
	if err != nil {
		s.unlock()
		if e.options.Notice != nil {
			e.options.Notice(fmt.Sprintf("updates are slower than they could be, since %s cannot lock the memory of what the host keeps for them: %v", e.memory, err))
		}
	}
	if s.locked == nil {
		s.streams, slots = inTurn{e.memory}, 1
	}
	for range slots {
		s.slots = append(s.slots, make(map[string]*buffer))
	}
}

func (s *staging) unlock() {
	for _, part := range s.locked {
		s.streams.Unlock(part)
	}
	s.locked = nil
}

// close frees the slots. No copy is under way then, since each has waited.
func (s *staging) close() {
	s.unlock()
	for _, slot := range s.slots {
		for _, b := range slot {
			b.close()
		}
	}
	s.slots = nil
}

// at returns a part as it lies on the device, in slot i for what the host keeps of it.
// ONNX Runtime would make a copy too, but in new memory for each part.
func (s *staging) at(i int, p *optimizerPart) (*optimizerPart, error) {
	on := *p
	on.state = maps.Clone(p.state)
	for port, v := range s.kept(p) {
		b := s.slots[i][port]
		if b == nil {
			b = &buffer{memory: s.memory, dtype: v.dtype}
			s.slots[i][port] = b
		}
		to, err := b.of(v.shape...)
		if err != nil {
			return nil, err
		}
		if port == ports.Param {
			on.p = to
		} else {
			on.state[port] = to
		}
	}
	return &on, nil
}

// kept are the tensors of a part that the host keeps and the device updates, by port.
func (s *staging) kept(p *optimizerPart) map[string]*Value {
	kept := make(map[string]*Value)
	for port, v := range p.state {
		if v.memory != s.memory {
			kept[port] = v
		}
	}
	if p.p.memory != s.memory {
		kept[ports.Param] = p.p
	}
	return kept
}

// stages reports whether the host keeps something of a run, which then has one part.
func (s *staging) stages(r optimizerRun) bool { return len(s.kept(r.parts[0])) > 0 }

// move begins to copy what the host keeps of a part between it and slot i, once what the
// mark after stands for is complete, and sets the mark before behind it.
func (s *staging) move(stream, i int, p *optimizerPart, after, before int) error {
	err := s.streams.Follow(stream, i*marksOfSlot+after)
	for port, v := range s.kept(p) {
		if err == nil {
			err = s.streams.Begin(stream, s.slots[i][port].at, unsafe.Slice((*byte)(v.data), v.bytes))
		}
		switch {
		case len(s.locked) == 0: // the memory has counted it
		case stream == StreamUp:
			s.memory.Count(v.bytes, 0)
		default:
			s.memory.Count(0, v.bytes)
		}
	}
	if err != nil {
		return err
	}
	return s.streams.Mark(stream, i*marksOfSlot+before)
}

// each calls run for the runs in order, with what the host keeps of them on the device.
// When it returns, the host has all of it again and nothing is under way, whatever failed.
func (s *staging) each(runs []optimizerRun, run func(optimizerRun) error) (err error) {
	defer func() {
		if err = errors.Join(err, s.streams.Settle()); err != nil {
			err = s.memory.Check(err)
		}
	}()
	ahead := min(1, len(s.slots)-1) // so that the next goes up meanwhile
	for next := range len(runs) + ahead {
		if next < len(runs) && s.stages(runs[next]) {
			if err := s.move(StreamUp, next%len(s.slots), runs[next].parts[0], markDown, markUp); err != nil {
				return err
			}
		}
		if now := next - ahead; now >= 0 {
			if err := s.update(now%len(s.slots), runs[now], run); err != nil {
				return err
			}
		}
	}
	return nil
}

// update calls run for a run, of which what the host keeps is on its way to slot i, and
// sends it back from there.
func (s *staging) update(i int, r optimizerRun, run func(optimizerRun) error) error {
	if !s.stages(r) {
		return run(r)
	}
	part := r.parts[0]
	on, err := s.at(i, part)
	if err != nil {
		return err
	}
	if err := s.streams.Follow(StreamComputes, i*marksOfSlot+markUp); err != nil {
		return err
	}
	if err := run(optimizerRun{r.binding, []*optimizerPart{on}}); err != nil {
		return err
	}
	if err := s.streams.Mark(StreamComputes, i*marksOfSlot+markComputed); err != nil {
		return err
	}
	return s.move(StreamDown, i, part, markComputed, markDown)
}
