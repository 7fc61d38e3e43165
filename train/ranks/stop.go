package ranks

import "context"

// Context returns a context that ends with parent, and with the parent of any other
// rank: a rank that is told to stop tells the others. All ranks call end when they no
// longer need it, after the same calls of other methods.
func (g *Group) Context(parent context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(parent)
	if g.Size() == 1 {
		return ctx, cancel
	}
	// The ranks stand in a circle. Each tells the next once: 1 to stop, or 0 at its end.
	next, before := (g.Rank()+1)%g.Size(), (g.Rank()-1+g.Size())%g.Size()
	over, done := make(chan struct{}), make(chan struct{}, 2)
	alive, give := context.WithCancel(context.Background())
	go func() {
		defer func() { done <- struct{}{} }()
		word := []byte{0}
		select {
		case <-ctx.Done():
		case <-over:
		}
		if ctx.Err() != nil {
			word[0] = 1
		}
		g.t.Send(alive, next, tagStop, word) // a failure is noticed elsewhere
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		word := []byte{0}
		if g.t.Recv(alive, before, tagStop, word) == nil && word[0] == 1 {
			cancel()
		}
	}()
	return ctx, func() {
		close(over)
		if g.left || g.Lost() != nil {
			give() // the others may never answer
		}
		<-done
		<-done
		give()
		cancel()
	}
}
