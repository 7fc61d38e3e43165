package length

import (
	"context"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"onering/reward"
	"onering/reward/rewardtest"
)

func TestConformance(t *testing.T) {
	rewardtest.Run(t, "length")
	for name, r := range map[string]rule{
		"linear": {Kind: "linear", Unit: "characters", MaxLength: 40, Target: 10, Penalty: 0.3},
		"target": {Kind: "target", Unit: "tokens", MaxLength: 40, Target: 20, Penalty: 2},
		"a step": {Kind: "overlong", Unit: "tokens", MaxLength: 20, Penalty: 1},
	} {
		t.Run(name, func(t *testing.T) {
			rewardtest.RunNew(t, func() reward.Reward { c := r; return &c })
		})
	}
}

// grade returns the score of one response with so many tokens, or with so many characters
// of two bytes each.
func grade(t interface{ Fatal(...any) }, r *rule, tokens, characters int, truncated bool) reward.Score {
	scores, err := r.Score(context.Background(), []reward.Sample{{IDs: make([]int32, tokens), Response: strings.Repeat("é", characters), Truncated: truncated}})
	if err != nil {
		t.Fatal(err)
	}
	return scores[0]
}

func TestScore(t *testing.T) {
	overlong := rule{Kind: "overlong", Unit: "tokens", MaxLength: 20480, Buffer: 4096, Penalty: 1} // DAPO's numbers
	linear := rule{Kind: "linear", Unit: "tokens", MaxLength: 300, Target: 100, Penalty: 0.5}
	target := rule{Kind: "target", Unit: "characters", MaxLength: 300, Target: 100, Penalty: 1}
	wide := rule{Kind: "target", Unit: "tokens", MaxLength: 120, Target: 100, Penalty: 1}
	step := rule{Kind: "overlong", Unit: "tokens", MaxLength: 100, Penalty: 1}
	for _, tt := range []struct {
		name      string
		rule      rule
		length    int
		truncated bool
		want      float64
		reason    string
	}{
		{"empty", overlong, 0, false, 0, "a wanted length"},
		{"before the buffer", overlong, 16384, false, 0, "a wanted length"},
		{"in the buffer", overlong, 17408, false, -0.25, "too long"},
		{"half of the buffer", overlong, 18432, false, -0.5, "too long"},
		{"at the end", overlong, 20480, false, -1, "too long"},
		{"beyond", overlong, 30000, false, -1, "too long"},
		{"truncated though short", overlong, 10, true, -1, "truncated"},
		{"below the target", linear, 99, false, 0, "a wanted length"},
		{"at the target", linear, 100, false, 0, "a wanted length"},
		{"half way", linear, 200, false, -0.25, "too long"},
		{"at the maximum", linear, 300, false, -0.5, "too long"},
		{"truncated", linear, 50, true, -0.5, "truncated"},
		{"as wanted", target, 100, false, 0, "a wanted length"},
		{"longer", target, 150, false, -0.25, "too long"},
		{"shorter", target, 50, false, -0.25, "too short"},
		{"nothing", target, 0, false, -0.5, "too short"},
		{"nothing, far from wanted", wide, 0, false, -1, "too short"},
		{"before the step", step, 100, false, 0, "a wanted length"},
		{"behind the step", step, 101, false, -1, "too long"},
	} {
		if err := tt.rule.Validate(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		tokens, characters := tt.length, 7
		if tt.rule.Unit == "characters" {
			tokens, characters = 7, tt.length
		}
		got := grade(t, &tt.rule, tokens, characters, tt.truncated)
		if got.Value != tt.want || got.Reason != tt.reason || math.Signbit(got.Value) != (tt.want < 0) {
			t.Errorf("%s: %+v, want %v, %q", tt.name, got, tt.want, tt.reason)
		}
	}
}

// TestMonotone: a longer response never earns more with a punishment of length, and no
// response earns less than -penalty or more than 0.
func TestMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRule()
		r.Kind = rapid.SampledFrom([]string{"overlong", "linear", "target"}).Draw(t, "kind")
		r.MaxLength = rapid.IntRange(1, 1000).Draw(t, "max_length")
		r.Buffer = rapid.IntRange(0, r.MaxLength).Draw(t, "buffer")
		r.Target = rapid.IntRange(0, r.MaxLength-1).Draw(t, "target")
		r.Penalty = rapid.Float64Range(0.01, 10).Draw(t, "penalty")
		before := grade(t, r, 0, 0, false).Value
		for n := 1; n < 1100; n++ {
			value := grade(t, r, n, 0, false).Value
			if falls := r.Kind != "target" || n > r.Target; falls && value > before || !falls && value < before || value > 0 || value < -r.Penalty {
				t.Fatalf("%+v: %v for %d tokens after %v", r, value, n, before)
			}
			before = value
		}
	})
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		want string
		set  func(*rule)
	}{
		{"buffer = 3001: must be at most max_length", func(r *rule) { r.Buffer = 3001 }},
		{"target = 3000: must be less than max_length", func(r *rule) { r.Kind, r.Target = "linear", 3000 }},
		{"target = 3000: must be less than max_length", func(r *rule) { r.Kind, r.Target = "target", 3000 }},
	} {
		r := newRule()
		tt.set(r)
		if err := r.Validate(); err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

// TestEpisode: a length is that of all turns of the policy in an episode.
func TestEpisode(t *testing.T) {
	earlier := []reward.Written{{Text: strings.Repeat("é", 60), IDs: make([]int32, 500)}, {Text: "ab", IDs: make([]int32, 2)}}
	for unit, want := range map[string]float64{"tokens": -1, "characters": -0.5} {
		r := rule{Kind: "linear", Unit: unit, MaxLength: 100, Target: 50, Penalty: 1}
		scores, err := r.Score(t.Context(), []reward.Sample{{IDs: make([]int32, 9), Response: strings.Repeat("é", 13), Earlier: earlier}})
		if err != nil || scores[0].Value != want {
			t.Errorf("%s: %+v, %v, want %v", unit, scores, err, want)
		}
	}
}
