package metrics

// An Observer follows the progress of a run. Its methods are called from one goroutine at
// a time.
type Observer interface {
	// Begin opens a phase of total units, such as "rollout" of 512 trajectories; 0 is
	// unknown. It closes the phase before.
	Begin(phase, units string, total int)
	// Advance says that n more units are finished.
	Advance(n int)
	// Record receives a complete record of metrics.jsonl: of a round, of an evaluation, of
	// what is wrong, or of a step. Steps inside a round are left out, since the round's record sums them
	// up.
	Record(r Record)
	// Say hands over a line for people.
	Say(line string)
}

// Unobserved is the Observer that does nothing.
type Unobserved struct{}

// Observers are Observers that are called one after the other.
type Observers []Observer

// each calls tell with each Observer.
func (all *Observers) each(tell func(Observer)) {
	for _, o := range *all {
		tell(o)
	}
}

func (all *Observers) Begin(phase, units string, total int) {
	all.each(func(o Observer) { o.Begin(phase, units, total) })
}

func (all *Observers) Advance(n int)   { all.each(func(o Observer) { o.Advance(n) }) }
func (all *Observers) Record(r Record) { all.each(func(o Observer) { o.Record(r) }) }
func (all *Observers) Say(line string) { all.each(func(o Observer) { o.Say(line) }) }

func (Unobserved) Begin(phase, units string, total int) {}
func (Unobserved) Advance(n int)                        {}
func (Unobserved) Record(r Record)                      {}
func (Unobserved) Say(line string)                      {}
