package cmd

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"onering/reward"
	"onering/train/rl"
)

// A brevity reward gives a share of the full reward to short responses.
type brevity struct {
	Target int      `toml:"target" range:"[1,)"`
	Words  []string `toml:"words"`
}

func init() {
	reward.Register("test-brevity", func() reward.Reward { return &brevity{Target: 10, Words: []string{}} })
}

func (b *brevity) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores := make([]reward.Score, len(group))
	for i, s := range group {
		if len(s.Response) <= b.Target {
			scores[i].Value = 1
		}
	}
	return scores, nil
}

const severalRewards = needed + `[reward]
combine = "gate"
right = "answer"

[[reward.use]]
name = "test-brevity"
as = "short"
weight = 0.2
target = 20
words = ["a", "b"]

[[reward.use]]  # the answer
as = "answer"
name = "math"

[train]
rounds = 3
`

// several returns the parts of a configuration as one text.
func several(c rl.Config) string {
	r, ok := c.Reward.Rule.(*reward.Combined)
	if !ok {
		return fmt.Sprintf("%s %+v", c.Reward.Name, c.Reward.Rule)
	}
	text := c.Reward.Name + r.Combine
	for _, p := range r.Parts {
		text += fmt.Sprintf(", %s %s %v %v", p.Name, p.As, p.Weight, p.Threshold)
		if b, ok := p.Reward.(*brevity); ok {
			text += fmt.Sprintf(" %+v", *b)
		}
	}
	return text
}

// TestSeveralRewards: a list of rewards has the same meaning wherever a command reads it.
func TestSeveralRewards(t *testing.T) {
	const fromFile = "gate, test-brevity short 0.2 1 {Target:20 Words:[a b]}, math answer 1 1"
	for _, tt := range []struct {
		name, file string
		env, sets  []string
		want       string
	}{
		{"file", severalRewards, nil, nil, fromFile},
		{"in brackets", needed + `[reward]
use = [{name = "math", weight = 2},
  {name = "test-brevity"}]`, nil, nil, "sum, math math 2 1, test-brevity test-brevity 1 1 {Target:10 Words:[]}"},
		{"one alone", needed + "[[reward.use]]\nname = \"math\"\n", nil, nil, "sum, math math 1 1"},
		{"set in place of the default", needed, nil, []string{`reward.use=[{name="math"},{name="test-brevity",weight=-1}]`, "reward.combine=sum"},
			"sum, math math 1 1, test-brevity test-brevity -1 1 {Target:10 Words:[]}"},
		{"set in place of a name", needed + "[reward]\nname = \"test-brevity\"\ntarget = 3\n", nil, []string{`reward.use=[{name="math"}]`}, "sum, math math 1 1"},
		{"set in place of a list", severalRewards, nil, []string{`reward.use=[{name="math", as="answer"}]`}, "gate, math answer 1 1"},
		{"name in place of a list", severalRewards, nil, []string{"reward.name=test-brevity", "reward.target=5"}, "test-brevity &{Target:5 Words:[]}"},
		{"the last list", severalRewards, nil, []string{`reward.use=[{name="test-brevity"}]`, `reward.use=[{name="math", as="answer"}]`}, "gate, math answer 1 1"},
		{"one key of a part", severalRewards, nil, []string{"reward.use.short.weight=0.5", "reward.use.short.target=7", "reward.use.answer.threshold=0", "reward.use.short.words=c,d"},
			"gate, test-brevity short 0.5 1 {Target:7 Words:[c d]}, math answer 1 0"},
		{"environment", needed, []string{`ONERING_REWARD_USE=[{name="math"}]`, "ONERING_REWARD_COMBINE=product"}, nil, "product, math math 1 1"},
		{"environment over file", severalRewards, []string{`ONERING_REWARD_NAME=math`}, nil, "math &{Mode:boxed Tolerance:0"},
	} {
		c, err := load(tt.file, tt.env, tt.sets)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := several(c); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		checkRoundTrip(t, c)
	}
}

// TestBadRewards: errors name the place, the entry and the key.
func TestBadRewards(t *testing.T) {
	part := func(keys string) string {
		return strings.Replace(severalRewards, "name = \"math\"\n", "name = \"math\"\n"+keys+"\n", 1)
	}
	for _, tt := range []struct {
		name, file string
		sets       []string
		want       []string
	}{
		{"key of a part", strings.Replace(severalRewards, "target", "tarqet", 1), nil,
			[]string{`run.toml:13: unknown key "tarqet" in [[reward.use]] "short"; did you mean "target"?`}},
		{"key of the last part", part("wieght = 2"), nil, []string{`run.toml:19: unknown key "wieght" in [[reward.use]] "answer"; did you mean "weight"?`}},
		{"type", strings.Replace(severalRewards, "= 20", "= \"x\"", 1), nil, []string{`run.toml:13: reward.use.short.target = "x": must be a whole number`}},
		{"range", strings.Replace(severalRewards, "= 20", "= 0", 1), nil, []string{`run.toml:13: reward.use.short.target = 0: must be at least 1`}},
		{"weight", part("weight = inf"), nil, []string{`run.toml:19: reward.use.answer.weight = +Inf: must be a finite number`}},
		{"unknown reward", strings.Replace(severalRewards, "\"math\"", "\"maths\"", 1), nil, []string{`run.toml:16: [[reward.use]] 2: unknown reward "maths"; did you mean "math"? (there are `}},
		{"no name", strings.Replace(severalRewards, "name = \"math\"", "", 1), nil, []string{`run.toml:16: [[reward.use]] 2: it has no name: write name = and one of `}},
		{"name of the wrong type", strings.Replace(severalRewards, "name = \"math\"", "name = 3", 1), nil, []string{`run.toml:16: [[reward.use]] 2: reward.use.name = 3: must be a string in quotes`}},
		{"the same name", strings.Replace(severalRewards, "as = \"answer\"", "as = \"short\"", 1), nil, []string{`run.toml:16: [[reward.use]] 2: two parts are called "short": give one another name with as`}},
		{"odd name", strings.Replace(severalRewards, "as = \"answer\"", "as = \"a/b\"", 1), nil, []string{`run.toml:16: [[reward.use]] 2: as = "a/b": must consist of letters, digits, _ and -`}},
		{"combine", strings.Replace(severalRewards, "gate", "mean", 1), nil, []string{
			`run.toml:6: reward.combine = "mean": must be one of sum, product, gate`}},
		{"weights of a product", strings.Replace(severalRewards, "gate", "product", 1), nil, []string{`run.toml:12: reward.use.short.weight = 0.2: has no effect with combine = "product"; leave it at 1`}},
		{"threshold without a gate", part("threshold = 0.5"), []string{"reward.combine=sum"}, []string{`run.toml:19: reward.use.answer.threshold = 0.5: has an effect with combine = "gate" only; leave it at 1`}},
		{"right", strings.Replace(severalRewards, "right = \"answer\"", "right = \"math\"", 1), nil, []string{`run.toml:7: reward.right = "math": must be one of short, answer`}},
		{"none", needed + "[reward]\nuse = []\n", nil, []string{`run.toml:6: reward.use = "": must name at least one reward`}},
		{"no list", needed + "[reward]\nuse = \"math\"\n", nil, []string{`run.toml:6: reward.use: must be a list of tables, at most 64, such as [{name = "math"}, {name = "length", weight = 0.2}]`}},
		{"a table", needed + "[reward.use]\nname = \"math\"\n", nil, []string{`run.toml:5: reward.use: must be a list of tables`}},
		{"both", needed + "[reward]\nname = \"math\"\n[[reward.use]]\nname = \"math\"\n", nil, []string{`run.toml:7: reward.use goes without reward.name (run.toml:6): a run has one reward by its name, or a list`}},
		{"key of a list with one reward", needed + "[reward]\ncombine = \"sum\"\n", nil, []string{`run.toml:6: unknown key "combine" in [reward] for "math"; it goes with several rewards, each in a [[reward.use]]`}},
		{"key of a part with the list", severalRewards, []string{"reward.target=3"}, []string{`--set reward.target=3: unknown key "target" in [reward] for "several rewards"; it belongs in [[reward.use]], below name = "test-brevity"`}},
		{"set for no part", severalRewards, []string{"reward.use.shirt.weight=3"}, []string{`--set reward.use.shirt.weight=3: there is no [[reward.use]] "shirt"; did you mean "short"? (there are short, answer)`}},
		{"set without parts", needed, []string{"reward.use.math.weight=3"}, []string{`--set reward.use.math.weight=3: there is no [[reward.use]] "math": the run has the one reward "math"`}},
		{"set a name", severalRewards, []string{"reward.use.short.name=math"}, []string{`--set reward.use.short.name=math: reward.use.short.name cannot be changed alone: state the list reward.use anew`}},
		{"set no TOML", needed, []string{"reward.use=math,length"}, []string{`--set reward.use=math,length: reward.use: must be a list of tables, at most 64, such as `}},
		{"a header inside a text", needed + "[output]\ndir = \"\"\"\n[[reward.use]]\n\"\"\"\n[[reward.use]]\nname = \"math\"\ntarget = 3\n", nil,
			[]string{`run.toml:11: unknown key "target" in [[reward.use]] "math"`}},
	} {
		_, err := load(tt.file, nil, tt.sets)
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, lines, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.HasPrefix(lines[i], want) {
				t.Errorf("%s: got %s, want %s", tt.name, lines[i], want)
			}
		}
	}
}

// TestManyRewards: the number of entries is bounded, and with it the time to read them.
func TestManyRewards(t *testing.T) {
	_, err := load(needed+strings.Repeat("[[reward.use]]\nname = \"math\"\n", 20000), nil, nil)
	if err == nil || !strings.HasSuffix(err.Error(), `: reward.use: must be a list of tables, at most 64, such as [{name = "math"}, {name = "length", weight = 0.2}]`) {
		t.Errorf("error %.200v", err)
	}
	entries := ""
	for i := range 64 {
		entries += fmt.Sprintf("[[reward.use]]\nname = \"math\"\nas = \"m%d\"\nweight = \"x\"\n", i)
	}
	if _, err := load(needed+entries, nil, nil); err == nil || strings.Count(err.Error(), "must be a number") != 64 || !strings.Contains(err.Error(), "run.toml:260: reward.use.m63.weight") {
		t.Errorf("error %v", err)
	}
}
