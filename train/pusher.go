package train

import (
	"log/slog"
	"sync"
)

// A Pusher pushes checkpoints of a run to a hub while the run goes on, one at a time. It is a
// rundir.Follower: a checkpoint stays until it is pushed. What fails is said and tried again with the next
// checkpoint, and at the end of the run.
type Pusher struct {
	Pushing
	Push func(checkpoint string) error

	mu     sync.Mutex
	saved  int    // checkpoints that the run has written
	next   string // the one to push next; "" if there is none
	now    string // the one that is being pushed
	failed bool   // the newest push failed
	pushed string // the newest one that was pushed
	idle   sync.WaitGroup
}

// Saved implements rundir.Follower.
func (p *Pusher) Saved(checkpoint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.saved++; p.saved%p.PushEvery == 0 {
		p.begin(checkpoint)
	}
}

// begin has a checkpoint pushed in the background, now or once no other is; of several that wait only the newest is. The
// caller holds p.mu, or nothing is being pushed.
func (p *Pusher) begin(checkpoint string) {
	if p.now != "" {
		p.next = checkpoint
		return
	}
	p.now = checkpoint
	p.idle.Go(func() {
		for checkpoint != "" {
			err := p.Push(checkpoint)
			if err != nil {
				slog.Warn("a checkpoint could not be pushed; it is tried again with the next one, and at the end",
					"checkpoint", checkpoint, "to", p.PushTo, "reason", err)
			}
			p.mu.Lock()
			if p.failed = err != nil; !p.failed {
				p.pushed = checkpoint
			}
			checkpoint = p.next
			p.now, p.next = checkpoint, ""
			p.mu.Unlock()
		}
	})
}

// Needs implements rundir.Follower.
func (p *Pusher) Needs(checkpoint string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return checkpoint == p.now || checkpoint == p.next
}

// Finish pushes the result of a run unless that was pushed, waits for it, and reports whether it is there.
func (p *Pusher) Finish(last string) bool {
	p.mu.Lock()
	if p.next != last { // the result comes in its place
		p.next = ""
	}
	p.mu.Unlock()
	p.idle.Wait()
	if p.pushed != last {
		p.begin(last)
		p.idle.Wait()
	}
	return !p.failed
}
