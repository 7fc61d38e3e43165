package train

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"

	"onering/internal/settings"
	"onering/train/metrics"
	"onering/train/ranks"
)

// Stopping says when a run ends before its last round or step.
type Stopping struct {
	StopWhen  string `toml:"stop_when" help:"end the run early: \"NAME stops rising\", \"NAME stops falling\", \"NAME >= NUMBER\" or \"NAME <= NUMBER\", with the name of a figure of a round or an evaluation, such as reward or eval/SUITE/pass@1; eval is the evaluation's main figure. The checkpoint with the best value is kept in addition, and the summary names it"`
	StopAfter int    `toml:"stop_after" needs:"stop_when!=" range:"[1,1000000]" help:"how many times in a row the figure must not improve, or must be beyond the number"`
}

// A stopRule follows the figure of train.stop_when. What it knows follows from the records
// of the run alone, so a resumed run stops where one that was never killed does.
type stopRule struct {
	text, name string
	bound      *float64 // nil waits until the figure improves no more
	sign       float64  // 1 if higher is better
	times      int      // how many times in a row

	ended        bool // all ranks know that the run is to end
	seen, warned bool
	best         float64
	inARow       int     // how many values in a row count for the end
	step         int     // the step of the newest value
	newest       float64 // times sign
}

var (
	stopsMoving = regexp.MustCompile(`^(\S+)\s+stops\s+(rising|falling)$`)
	stopsBeyond = regexp.MustCompile(`^(\S+)\s*(>=|<=)\s*(\S+)$`)
)

// rule reads the settings: "NAME stops rising" or "falling" has no bound, and a sign of -1 turns "falling" and "<="
// into the other form. It is nil without train.stop_when.
func (s Stopping) rule() (*stopRule, error) {
	text := strings.TrimSpace(s.StopWhen)
	r := &stopRule{text: text, sign: 1, times: max(1, s.StopAfter)}
	if text == "" {
		return nil, nil
	}
	if m := stopsMoving.FindStringSubmatch(text); m != nil {
		r.name = m[1]
		if m[2] == "falling" {
			r.sign = -1
		}
		return r, nil
	}
	m := stopsBeyond.FindStringSubmatch(text)
	if m == nil {
		return nil, errors.New(`want "NAME stops rising", "NAME stops falling", "NAME >= NUMBER" or "NAME <= NUMBER"`)
	}
	bound, err := strconv.ParseFloat(m[3], 64)
	if err != nil || bound != bound { // bound != bound: NaN
		return nil, fmt.Errorf("%q is not a number", m[3])
	}
	r.name, r.bound = m[1], &bound
	if m[2] == "<=" {
		r.sign = -1
	}
	return r, nil
}

// An Ending is how a run with train.stop_when ended; it is empty without that.
type Ending struct {
	Early string `json:"early,omitempty"`           // why it ended before its last round or step
	Best  string `json:"best_checkpoint,omitempty"` // the checkpoint with the best value of the figure
}

// Check returns what is wrong with the rule, for a run that evaluates while it goes on or not, in rounds or not.
func (s Stopping) Check(evaluates, rounds bool) error {
	r, err := s.rule()
	switch {
	case r == nil || err != nil:
		return err
	case strings.HasPrefix(r.name, "seconds/"):
		return errors.New("a run must not depend on the time that it takes: name another figure")
	case !evaluates && (r.kind() == "eval" || !rounds):
		return errors.New("nothing is measured while the run goes on: set train.eval_every, and what is held out")
	}
	return nil
}

// kind is the kind of the records that have the figure.
func (r *stopRule) kind() string {
	if r.name == "eval" || strings.HasPrefix(r.name, "eval/") {
		return "eval"
	}
	return "round"
}

// value returns the figure in a record of a round or an evaluation.
func (r *stopRule) value(record metrics.Record) (x float64, ok bool) {
	for _, m := range record {
		x, ok = m.Value.(float64)
		if ok && (m.Name == r.name || r.name == "eval" && record.Get("kind") == "eval" && mainFigure(m.Name, record)) {
			return x, true
		}
	}
	return 0, false
}

// mainFigure says whether a name is that of an evaluation's main figure: the mean pass@1 of the suites, or the loss.
func mainFigure(name string, record metrics.Record) bool {
	if record.Get("eval/average/pass@1") != nil {
		return name == "eval/average/pass@1"
	}
	return name == "loss" || strings.HasPrefix(name, "eval/") && strings.HasSuffix(name, "/pass@1")
}

// see notes a record that was written: whether its figure is the best so far, and how many values in a row have not
// improved, or with a bound have reached it. Records without the figure count for nothing. A nil rule sees nothing.
func (r *stopRule) see(record metrics.Record) {
	if kind := record.Get("kind"); r == nil || kind != "round" && kind != "eval" {
		return
	}
	x, ok := r.value(record)
	if !ok {
		r.miss(record)
		return
	}
	x *= r.sign // so that higher is better
	improved := !r.seen || x > r.best
	if counts := r.bound == nil && !improved || r.bound != nil && x >= r.sign**r.bound; counts {
		r.inARow++
	} else {
		r.inARow = 0
	}
	if improved {
		r.best = x
	}
	r.seen, r.newest, r.step = true, x, int(record.Float("step"))
}

// miss says once that a figure is missing where all of its kind are.
func (r *stopRule) miss(record metrics.Record) {
	if r.seen || r.warned || record.Get("kind") != r.kind() && record.Get("round") != nil {
		return
	}
	r.warned = true
	var names []string
	for _, m := range record {
		if _, ok := m.Value.(float64); ok {
			names = append(names, m.Name)
		}
	}
	slog.Warn("train.stop_when waits for a figure that is not there"+settings.DidYouMean(r.name, names), "figure", r.name)
}

// agree tells all ranks what the first has seen: only that one reads records of earlier processes.
func (r *stopRule) agree(g *ranks.Group) (err error) {
	if r != nil && !r.ended {
		r.ended, err = ranks.Tell(g, r.inARow >= r.times)
	}
	return err
}

// after is agree after a piece of a run; it records that the run ends.
func (r *stopRule) after(run *Run) error {
	was := r != nil && r.ended
	if err := r.agree(run.Ranks); err != nil || was || !run.Stopped() {
		return err
	}
	return run.together(func() error {
		record := metrics.Record{}.With("kind", "early").With("step", run.at.Step)
		if run.at.Round > 0 {
			record = record.With("round", run.at.Round)
		}
		run.Observer.Say("the run ends early: " + r.reason())
		return run.Folder.Append(record.With("reason", r.reason()))
	})
}

// score returns how good the model is after a step, if that was measured there.
func (r *stopRule) score(step int) *float64 {
	if r == nil || !r.seen || r.step != step {
		return nil
	}
	return &r.newest
}

// reason says why the run has ended.
func (r *stopRule) reason() string {
	return fmt.Sprintf("%s (%d in a row; best %.4g)", r.text, r.inARow, r.sign*r.best)
}
