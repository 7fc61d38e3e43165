package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"onering/models"
	"onering/runtime"
	"onering/train/learn"
)

// links are those between the devices of a Group's ranks.
type links struct{ linked *linked } // nil if sums pass through the host

// A linked is a Group whose ranks' devices send to each other by NCCL.
type linked struct {
	*Group
	*runtime.Link
	over chan struct{} // closed by Unlink
}

// Link makes gradients and weights go from device to device by NCCL if transport is nccl or auto, and describes
// the way. If NCCL cannot be used, auto uses MPI and the description says why; with nccl it is an error.
func (g *Group) Link(env *runtime.Env, transport string) (how string, err error) {
	if g.Size() == 1 || transport == "mpi" {
		return "mpi", nil
	}
	how, why, err := link(g, env)
	switch {
	case err != nil:
		return "", fmt.Errorf("ranks: linking the devices: %w", err)
	case why == "":
		return how, nil
	case transport == "nccl":
		return "", errors.New("ranks: distributed.transport = nccl: " + why)
	}
	return "mpi: " + why, nil
}

// An offer is a rank's message before the ranks link their devices.
type offer struct{ Host, Card, Version, Why string }

// link links the devices and returns how, or why it cannot; err means that the ranks cannot reach each other.
// After each step that may fail on one rank, all are told, so that none waits in vain. It starts watch.
func link(g *Group, env *runtime.Env) (how, why string, err error) {
	library, card, failed := env.NCCL(context.Background())
	own := offer{Card: card, Why: text(failed)}
	own.Host, _ = os.Hostname()
	if failed == nil {
		own.Version = library.Version
	}
	offers, err := GatherAll(g, own, nil)
	if err != nil {
		return "", "", err
	}
	if why := refused(offers); why != "" {
		return "", why, nil
	}
	id, failed := FromFirst(g, library.ID) // by which NCCL's ranks find each other
	if failed != nil {
		return "", text(failed), g.Lost()
	}
	l, failed := linkWithin(max(g.timeout, leastLinking), func() (*runtime.Link, error) { return env.Link(library, id, g.Rank(), g.Size()) })
	whys, err := GatherAll(g, text(failed), nil)
	for r, x := range whys { // a rank that has waited in vain does not know why
		if x != "" && (why == "" || strings.Contains(why, late)) {
			why = fmt.Sprintf("rank %d: %s", r, x)
		}
	}
	if err == nil && why == "" {
		g.linked = &linked{g, l, make(chan struct{})}
		go g.linked.watch()
		return "nccl " + library.Version, "", nil
	}
	if l != nil {
		l.Abort()
		l.Close()
	}
	return "", why, err
}

// text is an error's, "" of none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// refused says why ranks cannot be linked; "" if they can.
func refused(offers []offer) string {
	on := map[[2]string]int{} // the rank on each card
	for r, o := range offers {
		card := [2]string{o.Host, o.Card}
		if o.Why != "" {
			return fmt.Sprintf("rank %d: %s", r, o.Why)
		}
		if o.Version != offers[0].Version {
			return fmt.Sprintf("rank %d has NCCL %s, rank 0 has NCCL %s: install the same on all hosts", r, o.Version, offers[0].Version)
		}
		if first, taken := on[card]; taken {
			return fmt.Sprintf("ranks %d and %d are on the same card, %s of host %s, and NCCL links different ones", first, r, o.Card, o.Host)
		}
		on[card] = r
	}
	return ""
}

// leastLinking is how long ranks wait for each other to link, at least. Tests shorten it.
var leastLinking = time.Minute

const late = "NCCL has not joined the ranks after"

// linkWithin returns the result of f, or an error that begins with late if f takes longer than most. f then continues:
// NCCL has no way to cancel joining.
func linkWithin(most time.Duration, f func() (*runtime.Link, error)) (*runtime.Link, error) {
	var link *runtime.Link
	done := make(chan error, 1)
	go func() {
		l, err := f()
		link = l
		done <- err
	}()
	select {
	case err := <-done:
		return link, err
	case <-time.After(most):
		return nil, fmt.Errorf("%s %v: a rank is stopped, or their hosts do not reach each other (NCCL_SOCKET_IFNAME "+
			"names the network); a longer distributed.timeout gives it more time", late, most)
	}
}

// watch cuts the link once a rank has ended the run, or NCCL, asked each second, finds that one is gone: else
// this rank would wait for it for ever. It returns after Unlink.
func (l *linked) watch() {
	ended := make(chan error, 1)
	go func() { ended <- l.t.Ended() }()
	for {
		var err error
		select {
		case <-l.over:
			return
		case err = <-ended:
		case <-time.After(time.Second):
			err = l.Check()
		}
		if err != nil {
			l.lose(err)
			l.Link.Abort()
			return
		}
	}
}

// Unlink frees what Link has made. All ranks call it.
func (x *links) Unlink() error {
	l := x.linked
	if l == nil {
		return nil
	}
	x.linked = nil
	close(l.over)
	if l.Lost() != nil {
		l.Link.Abort()
	}
	return l.Link.Close()
}

// Device implements learn.Ranks.
func (x links) Device() learn.Device {
	if x.linked == nil || x.linked.left {
		return nil
	}
	return x.linked
}

// do makes a call of the Link, unless the ranks have lost each other.
func (l *linked) do(call func() error) error {
	if err := l.Lost(); err != nil {
		return err
	}
	return l.lose(call())
}

// SumParts implements learn.Device.
func (l *linked) SumParts(w *models.Weights, bounds []int) error {
	return l.inPortions(bounds, func(from, to []int) error {
		return l.do(func() error { return l.Add(w, from, to) })
	})
}

// Spread implements learn.Device.
func (l *linked) Spread(w *models.Weights, bounds []int) error {
	return l.do(func() error {
		own, err := l.Link.Spread(w, bounds)
		l.sent.Add(int64(own * (l.Size() - 1)))
		return err
	})
}

// Wait implements learn.Device.
func (l *linked) Wait() error { return l.do(l.Link.Wait) }
