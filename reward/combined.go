package reward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"onering/internal/settings"
)

// A Combined makes one reward of several parts. All parts score the same group, at the
// same time; the result does not depend on which ends first. The component of a part has
// the part's name, and its value without the weight. Components and figures that the part
// itself reports follow as PART/NAME.
//
// A part that skips a sample is left out of its reward, and the other weights stay
// unchanged. A sample that all parts skip is skipped. A part without a grade (its status
// is not OK) counts 0, and the sample gets the first such status; unlike for a single
// reward, its value may then differ from 0.
type Combined struct {
	Combine string `toml:"combine" choice:"sum product gate" help:"what makes one number of the values" note:"sum adds weight times value; product multiplies the values; gate is the sum up to the first part whose value is below its threshold: that part still counts, and those after it count 0"`
	Right   string `toml:"right" help:"the part that says in evaluations whether a response is right, and gives its answer" note:"if not given, the first of math, exact and choice; without one, a response is right that earns 1"`
	// Parts are in the order of the run file.
	Parts []Part `toml:"-" list:"use"`
}

// A Part is one of the rewards of a Combined.
type Part struct {
	Name      string  `toml:"name" help:"a registered reward; required"`
	As        string  `toml:"as" help:"what the part is called in metrics, rollouts and messages; the reward's name if not given"`
	Weight    float64 `toml:"weight" help:"factor of its values" note:"0 only measures, a negative one makes it a penalty; product takes no weights"`
	Threshold float64 `toml:"threshold" help:"with gate, the value from which on the parts after it count"`
	// Reward is the reward itself; its exported fields are further keys.
	Reward Reward `toml:"-" choose:"reward"`
}

func init() {
	settings.Register("reward", Names, New)
	settings.RegisterList("reward", func() any { return &Combined{Combine: "sum"} }, NewPart)
}

// NewPart returns a part with the registered reward called name and the defaults.
func NewPart(name string) (Part, error) {
	r, err := New(name)
	return Part{Name: name, As: name, Weight: 1, Threshold: 1, Reward: r}, err
}

// judges returns the parts that compare an answer with the problem's.
var judges = []string{"math", "exact", "choice"}

// judge returns the index of the part that decides whether a response is right, -1 if
// none does.
func (c *Combined) judge() int {
	return slices.IndexFunc(c.Parts, func(p Part) bool {
		if c.Right != "" {
			return p.As == c.Right
		}
		return slices.Contains(judges, p.Name)
	})
}

// Validate implements the optional method of a Reward. Keys of a part are use.PART.KEY.
func (c *Combined) Validate() error {
	var errs settings.Errors
	errs.Want("use", "", len(c.Parts) > 0, "must name at least one reward")
	errs.Want("right", c.Right, c.Right == "" || c.judge() >= 0, "must be one of "+strings.Join(c.labels(), ", "))
	for i, p := range c.Parts {
		under := "use." + p.As + "."
		errs.Want(under+"as", p.As, isLabel(p.As), "must consist of letters, digits, _ and -")
		errs.Want(under+"as", p.As, slices.Index(c.labels(), p.As) == i, "is the name of two parts: give one another name")
		errs.Want(under+"weight", p.Weight, finite(p.Weight), "must be a finite number")
		errs.Want(under+"weight", p.Weight, p.Weight == 1 || c.Combine != "product", `has no effect with combine = "product"; leave it at 1`)
		errs.Want(under+"threshold", p.Threshold, finite(p.Threshold), "must be a finite number")
		errs.Want(under+"threshold", p.Threshold, p.Threshold == 1 || c.Combine == "gate", `has an effect with combine = "gate" only; leave it at 1`)
		errs = append(errs, settings.Under(under, settings.Check(p.Reward))...)
	}
	return errors.Join(errs...)
}

func (c *Combined) labels() (list []string) {
	for _, p := range c.Parts {
		list = append(list, p.As)
	}
	return list
}

// isLabel says whether a part may have this label.
func isLabel(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// Score implements Reward.
func (c *Combined) Score(ctx context.Context, group []Sample) ([]Score, error) {
	parts, err := c.scoreParts(ctx, group)
	if err != nil {
		return nil, err
	}
	out := make([]Score, len(group))
	for i := range out {
		scores := make([]Score, len(parts)) // those of one sample
		for k := range parts {
			scores[k] = parts[k][i]
		}
		out[i] = c.combine(scores)
	}
	return out, nil
}

// scoreParts returns the scores of each part. The first part that fails cancels the others.
func (c *Combined) scoreParts(ctx context.Context, group []Sample) ([][]Score, error) {
	all, ctx := errgroup.WithContext(ctx)
	parts := make([][]Score, len(c.Parts))
	for k, p := range c.Parts {
		all.Go(func() error {
			scores, err := p.Reward.Score(ctx, group)
			if err == nil {
				err = checkScores(scores, len(group), false) // a part is not a Combined
			}
			parts[k] = scores
			if err != nil {
				return fmt.Errorf("%s: %w", p.As, err)
			}
			return nil
		})
	}
	return parts, all.Wait()
}

// combine combines the scores of a sample, one of each part, into one.
func (c *Combined) combine(scores []Score) Score {
	out := Score{Skip: true, Components: map[string]float64{}} // until a part does not skip the sample
	if c.Combine != "product" {
		out.Weights = map[string]float64{}
	}
	sum, product := 0.0, 1.0
	ended := -1 // the part that ended the gate; none yet
	for k, s := range scores {
		p := c.Parts[k]
		out.add(p.As, s)
		if out.Status == OK {
			out.Status = s.Status
		}
		if s.Skip {
			continue
		}
		value := s.Value
		if ended >= 0 { // parts behind the one that missed its threshold earn nothing
			value = 0
		}
		out.Skip = false
		out.Components[p.As] = value
		if out.Weights != nil {
			out.Weights[p.As] = p.Weight
		}
		sum += float64(p.Weight * value) // the conversion makes the processor round after the product and after the sum
		product *= value
		if c.Combine == "gate" && ended < 0 && (s.Status != OK || value < p.Threshold) {
			ended = k
		}
	}
	switch {
	case out.Skip:
	case c.Combine == "product":
		out.Value = product + 0 // no negative zero
	default:
		out.Value = sum
	}
	c.setVerdict(&out, scores, ended)
	return out
}

// add copies the components and figures that a part reports besides its value.
func (s *Score) add(part string, of Score) {
	for name, x := range of.Components {
		s.Components[part+"/"+name] = x
	}
	for name, x := range of.Log {
		if s.Log == nil {
			s.Log = map[string]float64{}
		}
		s.Log[part+"/"+name] = x
	}
}

// setVerdict sets the verdict, the answer and the reason of the combined score: those of the judge, or
// else the first answer and all reasons. A part that ended the gate (-1: none did) is the reason why
// later parts do not count, and a judge among those finds the response wrong.
func (c *Combined) setVerdict(out *Score, scores []Score, ended int) {
	judge := c.judge()
	if judge >= 0 {
		s := scores[judge]
		out.Answer, out.Reason, out.Verdict = s.Answer, s.Reason, isWrong
		switch passed := ended < 0 || ended >= judge; {
		case passed && !s.Judged():
			out.Verdict = unknown
		case passed && s.Right():
			out.Verdict = isRight
		}
	}
	if judge < 0 || out.Skip {
		var reasons []string
		for k, s := range scores {
			if out.Answer == "" {
				out.Answer = s.Answer
			}
			if s.Reason != "" {
				reasons = append(reasons, c.Parts[k].As+": "+s.Reason)
			}
		}
		out.Reason = strings.Join(reasons, "; ")
	}
	if ended >= 0 && ended < len(scores)-1 {
		out.Reason = c.Parts[ended].As + " is below its threshold"
		if why := scores[ended].Reason; why != "" {
			out.Reason += ": " + why
		}
	}
}

// SameAnswer implements Comparer by the judge, or else by the first part that can
// compare. Without such a part, answers are compared as texts.
func (c *Combined) SameAnswer(a, b string) bool {
	if same := SameAnswer(c.decider(func(r Reward) bool { return SameAnswer(r) != nil })); same != nil {
		return same(a, b)
	}
	return a == b
}

// decider returns the judge, or else the first part that can compare answers, or nil.
func (c *Combined) decider(can func(Reward) bool) Reward {
	at := c.judge()
	if at < 0 {
		at = slices.IndexFunc(c.Parts, func(p Part) bool { return can(p.Reward) })
	}
	if at < 0 {
		return nil
	}
	return c.Parts[at].Reward
}

// SetTemplate passes the template to the parts.
func (c *Combined) SetTemplate(name string) {
	for _, p := range c.Parts {
		SetTemplate(p.Reward, name)
	}
}

// Extract implements Extractor: the rule of the judge, or else of the first part that has one.
func (c *Combined) Extract() string {
	return Extract(c.decider(func(r Reward) bool { return Extract(r) != "" }))
}

// WithExtract implements Extractor for the parts that do so.
func (c *Combined) WithExtract(rule string) Reward {
	out := *c
	out.Parts = slices.Clone(c.Parts)
	for i, p := range out.Parts {
		if e, ok := p.Reward.(Extractor); ok && e.Extract() != "" {
			out.Parts[i].Reward = e.WithExtract(rule)
		}
	}
	return &out
}

// Groups returns the smallest number of groups that a part states.
func (c *Combined) Groups() int {
	n := math.MaxInt
	for _, p := range c.Parts {
		if x, ok := p.Reward.(interface{ Groups() int }); ok {
			n = min(n, x.Groups())
		}
	}
	if n == math.MaxInt {
		return runtime.GOMAXPROCS(0)
	}
	return n
}

// Varies says that scores vary if those of a part do.
func (c *Combined) Varies() bool {
	return slices.ContainsFunc(c.Parts, func(p Part) bool { return Varies(p.Reward) })
}

// Ready asks all parts.
func (c *Combined) Ready(ctx context.Context) error {
	return c.forEachPart(func(r Reward) error { return Ready(ctx, r) })
}

// Close closes the parts.
func (c *Combined) Close() error { return c.forEachPart(func(r Reward) error { return Close(r) }) }

// forEachPart joins the errors that do returns for the parts.
func (c *Combined) forEachPart(do func(Reward) error) error {
	var errs []error
	for _, p := range c.Parts {
		if err := do(p.Reward); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.As, err))
		}
	}
	return errors.Join(errs...)
}
