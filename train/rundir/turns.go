package rundir

import "fmt"

// Turns are the parts of an episode, in order. An empty list means that the policy wrote the whole response.
type Turns []TurnLine

// A TurnLine is a part of an episode.
type TurnLine struct {
	Author string `json:"author"` // Policy or Environment
	// From and To are its tokens: IDs from number From up to, not including, number To. Those
	// of the environment have 0 in LogP, W and Delta.
	From int    `json:"from"`
	To   int    `json:"to"`
	Text string `json:"text"`
	// Reward is the environment's reward for a turn of the policy, nil if there was none.
	Reward *float64 `json:"reward,omitempty"`
	// State is what a turn of the policy began in, for advantage = "gigpo"; rollout lines have none.
	State string `json:"state,omitempty"`
}

// The authors of turns.
const (
	Policy      = "policy"
	Environment = "environment"
)

// Check refuses turns that do not add up to a response of n tokens.
func (t Turns) Check(n int) error {
	at := 0
	for i, x := range t {
		switch {
		case x.Author != Policy && x.Author != Environment:
			return fmt.Errorf("turns[%d]: the author is %q: must be %s or %s", i, x.Author, Policy, Environment)
		case x.From != at || x.To < x.From || x.To > n:
			return fmt.Errorf("turns[%d]: its tokens are from %d to %d: must begin at %d, where the turn before it ends, and end by %d", i, x.From, x.To, at, n)
		}
		at = x.To
	}
	if len(t) > 0 && at != n {
		return fmt.Errorf("turns have %d of the response's %d tokens: must have all", at, n)
	}
	return nil
}

// Last returns the last turn of the policy. It is empty if the environment has the last word.
func (t Turns) Last() TurnLine {
	if last := t[len(t)-1]; last.Author == Environment {
		return TurnLine{Author: Policy, From: last.To, To: last.To}
	}
	return t[len(t)-1]
}

// Earned returns the sum of the turns' rewards, and whether any has one.
func (t Turns) Earned() (sum float64, rewarded bool) {
	for _, x := range t {
		if x.Reward != nil {
			sum, rewarded = sum+*x.Reward, true
		}
	}
	return sum, rewarded
}

// Sampled returns the figures that belong to the policy's tokens; nil if there is not one
// figure for each token of the response.
func Sampled[S ~[]F, F any](t Turns, figures S) (own S) {
	if len(t) == 0 {
		return figures
	}
	if len(figures) != t[len(t)-1].To {
		return nil
	}
	for _, x := range t {
		if x.Author == Policy {
			own = append(own, figures[x.From:x.To]...)
		}
	}
	return own
}

// Widen is the inverse of Sampled: tokens of the environment have zeros.
func Widen[S ~[]F, F any](t Turns, own S) S {
	if len(t) == 0 || len(own) == 0 {
		return own
	}
	figures := make(S, t[len(t)-1].To)
	for _, x := range t {
		if x.Author == Policy {
			own = own[copy(figures[x.From:x.To], own):]
		}
	}
	return figures
}
