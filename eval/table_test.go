package eval

import (
	"strings"
	"testing"

	"onering/sampler"
)

func TestPrint(t *testing.T) {
	p := Plan{Settings: Settings{Model: "models/m", Template: "qwen_math", Samples: 2, Sampling: sampler.Sampling{Temperature: 0.6, TopP: 0.95, MaxNewTokens: 3000}}}
	p.Suites = []suitePlan{{"aime24", []string{"a", "b"}, ""}, {"my|own", []string{"c"}, ""}}
	r := must(newResponses(p))
	for i, k := range keys(p) {
		if err := r.Add(Response{Suite: k.suite, Problem: k.problem, Sample: k.sample, Right: i == 1, Answer: "1", Tokens: 100 * i}); err != nil {
			t.Fatal(err)
		}
	}
	rep := must(r.Report(nil))
	for _, tt := range []struct {
		markdown bool
		want     string
	}{
		{false, `
models/m: 2 samples at T=0.6, top-p 0.95, template qwen_math, at most 3000 tokens
               AIME24     my|own       Avg.
avg@2            25.0        0.0       12.5
  95 %       3.1-77.6   0.0-79.3   1.6-60.1
  spread         25.0        0.0       12.5
pass@2           50.0        0.0       25.0
  95 %       9.5-90.5   0.0-79.3   4.7-69.6
maj@2             0.0        0.0        0.0
  95 %       0.0-65.8   0.0-79.3   0.0-51.5
tokens            150        450        300
truncated         0.0        0.0        0.0
unanswered        0.0        0.0        0.0
problems            2          1          3
`},
		{true, `
models/m: 2 samples at T=0.6, top-p 0.95, template qwen_math, at most 3000 tokens

|            |   AIME24 |  my\|own |     Avg. |
|:-----------|---------:|---------:|---------:|
| avg@2      |     25.0 |      0.0 |     12.5 |
`},
	} {
		var b strings.Builder
		if err := rep.Print(&b, tt.markdown); err != nil {
			t.Fatal(err)
		}
		if got, want := b.String(), strings.TrimPrefix(tt.want, "\n"); !strings.HasPrefix(got, want) || !tt.markdown && got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestPrintComparison(t *testing.T) {
	tuned := greedy
	tuned.Model = "tuned"
	c := must(report(greedy, map[string][]int{"amc": {0, 0, 0, 1, 1, 0, 0, 0}}).Compare(report(tuned, map[string][]int{"amc": {1, 1, 1, 1, 0, 1, 1, 1}})))
	var b strings.Builder
	if err := c.Print(&b, false); err != nil {
		t.Fatal(err)
	}
	want := `A is base: greedy, template qwen_math, at most 3000 tokens
B is tuned: greedy, template qwen_math, at most 3000 tokens
                       AMC
A                     25.0
B                     87.5
B - A                +62.5
  95 %       +0.0 to +88.3
p                   0.1250
better A:B             1:6
tokens A                45
tokens B                45
problems                 8
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
