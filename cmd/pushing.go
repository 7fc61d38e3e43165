package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"onering/models/hub"
	"onering/train"
)

// A pusher pushes checkpoints of a run to a hub while the run goes on, one at a time. It
// implements rundir.Follower: a checkpoint stays until it is pushed. What fails is said and tried
// again with the next checkpoint, and at the end of the run.
type pusher struct {
	train.Pushing
	ctx  context.Context
	push func(ctx context.Context, checkpoint string) error

	mu     sync.Mutex
	saved  int    // checkpoints that the run has written
	next   string // the one to push next; "" if there is none
	now    string // the one that is being pushed
	failed bool   // the newest push failed
	pushed string // the newest one that was pushed
	idle   sync.WaitGroup
}

// newPusher returns what pushes the run's checkpoints; nil if the run pushes none. It refuses a
// run that may not push, before the run begins.
func newPusher(ctx context.Context, p train.Pushing, options hub.Options) (*pusher, error) {
	if p.PushTo == "" {
		return nil, nil
	}
	options.Progress = nil // the terminal shows the run
	as := hub.PushOptions{Options: options, Private: p.PushPrivate}
	if err := hub.CheckPush(ctx, p.PushTo, as); err != nil {
		return nil, fmt.Errorf("output.push_to = %q: %w", p.PushTo, err)
	}
	return &pusher{Pushing: p, ctx: ctx, push: func(ctx context.Context, checkpoint string) error {
		c := pushCommand{Model: checkpoint, To: p.PushTo}
		sources, err := c.sources()
		if err != nil {
			return err
		}
		as.Message = c.Message
		out, err := hub.Push(ctx, p.PushTo, sources, as)
		if err == nil {
			slog.Info("pushed a checkpoint", "checkpoint", filepath.Base(checkpoint), "commit", out.Commit, "url", out.URL)
		}
		return err
	}}, nil
}

// Saved implements rundir.Follower.
func (p *pusher) Saved(checkpoint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.saved++; p.saved%p.PushEvery == 0 {
		p.begin(checkpoint)
	}
}

// begin has a checkpoint pushed once no other is.
func (p *pusher) begin(checkpoint string) {
	if p.now != "" {
		p.next = checkpoint
		return
	}
	p.now = checkpoint
	p.idle.Go(func() {
		for checkpoint != "" {
			err := p.push(p.ctx, checkpoint)
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
func (p *pusher) Needs(checkpoint string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return checkpoint == p.now || checkpoint == p.next
}

// finish pushes the result of a run unless that was pushed, and waits for it. Its error names the
// command that does the same later.
func (p *pusher) finish(run string) error {
	last, err := train.Folder(run).Model()
	if err != nil {
		return err
	}
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
	if p.failed {
		return unpushed{fmt.Errorf("the run is finished, but its last checkpoint could not be pushed to %s: onering push --model %s --to %s",
			p.PushTo, shellQuoted(nearest(run)), p.PushTo)}
	}
	return nil
}

// unpushed is the error of a finished run whose last push failed.
type unpushed struct{ error }

// apart takes the error of the last push out of that of a run, so that the summary is printed first.
func apart(err error) (run, push error) {
	if late, ok := errors.AsType[unpushed](err); ok {
		return nil, late.error
	}
	return err, nil
}
