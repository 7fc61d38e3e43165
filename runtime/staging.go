package runtime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unsafe"
)

// A staging moves the arrays of an Optimizer that the host holds to the device and back: each update uploads every
// part, updates it there and downloads it. If the device can copy while it computes, three parts are uploaded,
// updated and downloaded at the same time.
type staging struct {
	memory  *memory
	streams Streams              // nil if copies do not overlap with computation
	locked  [][]byte             // memory that the device accesses directly
	slots   []map[string]*buffer // by port, the places of parts on the device
}

// stagedAtOnce is the largest number of elements of a staged part whose shape does not matter: enough that its copies
// take longer than their start, and few enough that all slots take little memory.
const stagedAtOnce = 8 << 20

// stagingSlots is how many parts are on the device at once if it can copy while it computes.
const stagingSlots = 3

// The marks of a slot; each slot has as many.
const (
	markUp = iota
	markComputed
	markDown
	marksOfSlot
)

// open prepares for parts that the host holds in ranges of its memory, and locks these, so that the device accesses
// them directly: all or none. If it cannot, there is one slot, copies do not overlap with computation, and Notice is
// called.
func (s *staging) open(e *Env, ranges [][]byte) {
	var err error
	slots := 1
	if streams, ok := e.memory.Driver.(Streams); ok && len(ranges) > 0 {
		s.streams, slots = streams, stagingSlots
		for _, part := range ranges {
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
		s.streams, slots = nil, 1
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

// close frees the slots. No copy is under way then, since each call has waited.
func (s *staging) close() {
	s.unlock()
	for _, slot := range s.slots {
		for _, b := range slot {
			b.close()
		}
	}
	s.slots = nil
}

// onDevice returns a part whose arrays are all on the device: for those that the host holds it has buffers of slot i,
// whose content the caller copies. ONNX Runtime would copy them too, but to new memory for each part.
func (s *staging) onDevice(i int, p part) (part, error) {
	on := part{p.update, maps.Clone(p.values)}
	for _, port := range s.hostPorts(p) {
		v, b := p.values[port], s.slots[i][port]
		if b == nil {
			b = &buffer{memory: s.memory, dtype: v.dtype}
			s.slots[i][port] = b
		}
		to, err := b.resize(v.shape...)
		if err != nil {
			return part{}, err
		}
		on.values[port] = to
	}
	return on, nil
}

// hostPorts returns the ports of the arrays of a part that the host holds and the device updates.
func (s *staging) hostPorts(p part) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p.values)), func(port string) bool { return p.values[port].memory == s.memory })
}

// needsStaging reports whether the host holds an array of a part.
func (s *staging) needsStaging(p part) bool { return len(s.hostPorts(p)) > 0 }

// move begins to copy the host's arrays of p to slot i (StreamUp) or back (StreamDown). The copy waits for the mark
// wait of the slot and is followed by the mark done.
func (s *staging) move(stream, i int, p part, wait, done int) error {
	err := s.streams.Follow(stream, i*marksOfSlot+wait)
	for _, port := range s.hostPorts(p) {
		v := p.values[port]
		if err == nil {
			err = s.streams.Begin(stream, s.slots[i][port].at, unsafe.Slice((*byte)(v.data), v.bytes))
		}
		if stream == StreamUp {
			s.memory.Count(v.bytes, 0)
		} else {
			s.memory.Count(0, v.bytes)
		}
	}
	if err != nil {
		return err
	}
	return s.streams.Mark(stream, i*marksOfSlot+done)
}

// eachPart calls run for the parts in order, with their host arrays on the device. When it
// returns, the host has all arrays again and no copy is under way, even after an error. With streams the next
// part is uploaded and the previous one downloaded meanwhile, each in a slot of its own.
func (s *staging) eachPart(parts []part, run func(part) error) (err error) {
	if s.streams == nil {
		for _, p := range parts {
			if err := s.inTurn(p, run); err != nil {
				return s.memory.Check(err)
			}
		}
		return nil
	}
	defer func() {
		if err = errors.Join(err, s.streams.Settle()); err != nil {
			err = s.memory.Check(err)
		}
	}()
	const ahead = 1 // so that the next part is uploaded meanwhile
	for next := range len(parts) + ahead {
		if next < len(parts) && s.needsStaging(parts[next]) {
			// The copy waits until the slot's last part was downloaded (markDown), and update waits for the copy (markUp).
			if err := s.move(StreamUp, next%len(s.slots), parts[next], markDown, markUp); err != nil {
				return err
			}
		}
		if now := next - ahead; now >= 0 {
			if err := s.update(now%len(s.slots), parts[now], run); err != nil {
				return err
			}
		}
	}
	return nil
}

// inTurn copies the host's arrays of a part to the device, calls run and copies them back.
func (s *staging) inTurn(p part, run func(part) error) error {
	if !s.needsStaging(p) {
		return run(p) // all its arrays are on the device
	}
	on, err := s.onDevice(0, p) // with buffers of slot 0, as one part at a time needs no more
	for _, port := range s.hostPorts(p) {
		v := p.values[port]
		if err == nil {
			err = s.memory.Upload(on.values[port].data, v.data, v.bytes)
		}
	}
	if err == nil {
		err = run(on)
	}
	for _, port := range s.hostPorts(p) {
		v := p.values[port]
		if err == nil {
			err = s.memory.Download(v.data, on.values[port].data, v.bytes)
		}
	}
	return err
}

// update calls run for a part whose host arrays are being copied to slot i, and begins to copy them back. The device's
// computation waits for the first copy, and the second for the computation, by marks.
func (s *staging) update(i int, p part, run func(part) error) error {
	if !s.needsStaging(p) {
		return run(p) // all its arrays are on the device
	}
	on, err := s.onDevice(i, p)
	if err != nil {
		return err
	}
	if err := s.streams.Follow(StreamComputes, i*marksOfSlot+markUp); err != nil {
		return err
	}
	if err := run(on); err != nil {
		return err
	}
	if err := s.streams.Mark(StreamComputes, i*marksOfSlot+markComputed); err != nil {
		return err
	}
	return s.move(StreamDown, i, p, markComputed, markDown)
}
