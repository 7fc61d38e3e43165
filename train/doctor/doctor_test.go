package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"onering/data"
	"onering/train/metrics"
)

// A patient is a run of one round, of 16 problems with 8 responses each.
type patient struct {
	facts  Facts
	record metrics.Record // of the round; it replaces figures of the same name
	before metrics.Record // of the first evaluation
	round  Round
}

// healthy returns a run with nothing wrong: a fourth of the responses is right, all end, and
// the steps move the policy.
func healthy() *patient {
	p := &patient{facts: Facts{
		Settings: map[string]string{
			"rollout.temperature": "1", "rollout.top_p": "1", "rollout.min_p": "0", "rollout.top_k": "0", "rollout.max_new_tokens": "40", "model.template": "no",
			"optimizer.learning_rate": "0.0004", "optimizer.eps": "1e-08", "optimizer.max_grad_norm": "1", "train.epochs": "1", "objective.clip_low": "0.2",
			"eval.max_new_tokens": "0", "reward.name": "math",
		},
		Neighbor: func(data.Problem, int) []string { return nil }, Vocabulary: 32, Parameters: 1 << 16, Weight: 0.1, Extract: "boxed", ComparesAnswers: true, Steps: 32, Defaults: map[string]string{"objective.clip_low": "0.2"},
	}}
	for i := range 16 {
		text, answer := fmt.Sprintf("%d+%d=", 100+i, 200+3*i), fmt.Sprint(300+4*i)
		p.round.Problems = append(p.round.Problems, data.Problem{Text: text, Answers: []string{answer}, File: "t.jsonl", Line: i + 1, Fields: data.Object{{Name: "problem", Value: text}, {Name: "answer", Value: answer}}})
		for k := range 8 {
			said := fmt.Sprint(300 + 4*i + 2*max(0, k-1) + 5*(k/4)*i)
			x := Response{Problem: i, Text: `\boxed{` + said + "}", Answer: said, Judged: true, Tokens: 12 + (5*k+3*i)%9, LogProb: -3, Entropy: 3}
			if said == answer {
				x.Value, x.Right = 1, true
			}
			p.round.Responses = append(p.round.Responses, x)
		}
	}
	for n := range 4 {
		p.round.Steps = append(p.round.Steps, step(n, 0.1*float64(n), 0.01*float64(n)))
	}
	return p
}

func step(n int, moved, clipped float64) metrics.Record {
	return metrics.Record{}.With("step", n).With("delta/std", moved).With("clipped", clipped).With("grad_norm", 0.3).With("learning_rate", 0.0004)
}

// each changes all responses.
func (p *patient) each(change func(i int, x *Response)) *patient {
	for i := range p.round.Responses {
		change(i, &p.round.Responses[i])
	}
	return p
}

// set changes settings.
func (p *patient) set(pairs ...string) *patient {
	for i := 0; i < len(pairs); i += 2 {
		p.facts.Settings[pairs[i]] = pairs[i+1]
	}
	return p
}

// rewards replaces the rewards by those of a program.
func (p *patient) rewards(value func(i int, x *Response) float64) *patient {
	p.facts.ComparesAnswers, p.facts.Extract = false, ""
	return p.each(func(i int, x *Response) { x.Answer, x.Value, x.Right = "", value(i, x), false })
}

// golds replaces the answers of the data.
func (p *patient) golds(gold func(i int) string) *patient {
	for i := range p.round.Problems {
		q := &p.round.Problems[i]
		q.Answers = []string{gold(i)}
		q.Fields = data.Object{{Name: "problem", Value: q.Text}, {Name: "sum", Value: q.Fields[1].Value}, {Name: "answer", Value: q.Answers[0]}}
	}
	return p.each(func(_ int, x *Response) { x.Value, x.Right = 0, false })
}

// steps replaces the steps.
func (p *patient) steps(list ...metrics.Record) *patient {
	p.round.Steps = list
	return p
}

// look returns what is said of the run's first round.
func (p *patient) look() []Finding {
	d := New(p.facts)
	found := d.Begin()
	d.Look(append(p.before, metrics.Metric{Name: "kind", Value: "eval"}), nil)
	unanswered := 0.0
	for _, x := range p.round.Responses {
		if x.Answer == "" {
			unanswered++
		}
	}
	if unanswered /= float64(len(p.round.Responses)); !p.facts.ComparesAnswers {
		unanswered = math.NaN()
	}
	record := append(p.record, metrics.Record{}.With("kind", "round").With("reward", 0.2).With("reward_std", 0.4).With("right_share", 0.2).
		With("entropy", 0.2).With("response_length/mean", 16.0).With("truncated_share", 0.0).With("no_answer_share", unanswered)...)
	return append(found, d.Look(record, &p.round)...)
}

func TestCauses(t *testing.T) {
	wrong := func(i int, x *Response) { x.Text, x.Answer, x.Value, x.Right = fmt.Sprint("7 and ", i), "", 0, false }
	twins := func(i int, x *Response) { // the first two of each problem are equal
		if i%8 == 1 {
			x.Tokens = 12 + (3*x.Problem)%9
		}
	}
	for _, x := range []struct {
		name, cause, text string
		p                 *patient
	}{
		{"healthy", "", "", healthy()},
		{"rewards below 0", "", "", healthy().rewards(func(_ int, x *Response) float64 { return right(x) - 1 })},
		{"on policy", "", "", healthy().steps(step(0, 1e-6, 0))},
		{"a judge that varies a little", "", "", healthy().rewards(func(i int, x *Response) float64 { return right(x) + 0.01*float64(i%7) }).each(twins)},
		{"few responses", "", "", func() *patient { p := healthy(); p.round.Responses = p.round.Responses[:8]; return p.each(wrong) }()},
		{"greedy evaluation of other problems", "", "", func() *patient {
			p := healthy()
			p.before = metrics.Record{}.With("eval/s/pass@1", 0.9).With("eval/s/truncated_share", 0.4).With("eval/s/no_answer_share", 0.4)
			return p
		}()},

		{"environment", "environment", "fails in 75 % of the episodes", func() *patient {
			p := healthy()
			p.record = metrics.Record{}.With("environment/failed_share", 0.75).With("environment/reason", "the tool died")
			return p
		}()},
		{"skipped", "skipped", "50 % of the responses have no grade", healthy().each(func(i int, x *Response) { x.Skipped = i%2 == 0 })},
		{"hot", "hot", "rollout.temperature = 1", healthy().set("rollout.temperature", "4").each(func(_ int, x *Response) { x.Entropy = 2.5 * float64(x.Tokens) })},
		{"random weights", "untrained", "3.20 nats a token", healthy().each(func(_ int, x *Response) { x.Entropy, x.LogProb = 3.2*float64(x.Tokens), -3.2*float64(x.Tokens) })},
		{"bare prompts", "template", `model.template = "chat"`, func() *patient { p := healthy().each(wrong); p.facts.ChatTemplateUnused = true; return p }()},
		{"another end", "no-end", "at the token <eos>", healthy().each(func(i int, x *Response) { x.Truncated, x.WentOnAfter = i%8 > 0, "<eos>" })},
		{"an end that is none", "no-end", `end at "="`, healthy().each(wrong).each(func(_ int, x *Response) { x.EndsAt = "=" })},
		{"some out of turns", "", "", healthy().each(func(i int, x *Response) { x.Truncated, x.OutOfTurns = i%4 == 0, i%4 == 0 })},
		{"out of turns", "turns", "Raise environment.max_turns", healthy().each(func(i int, x *Response) { x.Truncated, x.OutOfTurns = i%8 > 1, i%8 > 1 })},
		{"stop text", "stop", "25 % of the responses are ended by a stop text", healthy().set("model.stop", "[=]").each(func(i int, x *Response) {
			if i%4 == 1 {
				wrong(i, x)
				x.Stopped = true
			}
		})},
		{"cut", "cut", "25 % of the responses are cut off at rollout.max_new_tokens = 40", healthy().each(func(i int, x *Response) { x.Truncated = i%4 == 1 })},
		{"cold", "no-variety", "rollout.temperature is 0.01", healthy().set("rollout.temperature", "0.01").each(func(i int, x *Response) { x.Text = fmt.Sprint(i / 8) })},
		{"top_p", "filter", "with rollout.top_p = 0.5 training", healthy().set("rollout.top_p", "0.5").each(func(_ int, x *Response) { x.LogProb = -1 })},
		{"the filtered policy is trained", "", "", healthy().set("rollout.top_p", "0.5").set("rollout.logp", "kept").each(func(_ int, x *Response) { x.LogProb = -1 })},
		{"the evaluation without the filter finds more", "filter", "with rollout.top_p = 0.5 12 % of the responses are right, and 60 % in the evaluation", func() *patient {
			p := healthy().set("rollout.top_p", "0.5").set("rollout.logp", "kept").each(func(i int, x *Response) {
				if i%8 > 0 {
					wrong(i, x)
				}
			})
			p.before = metrics.Record{}.With("eval/s/pass@1", 0.6)
			return p
		}()},
		{"a negative weight alone", "negative", "the part math of the reward has a negative weight (-1)", func() *patient {
			p := healthy().rewards(func(_ int, x *Response) float64 { return -right(x) })
			for i := range p.round.Responses {
				p.round.Responses[i].Parts = map[string]float64{"math": right(&p.round.Responses[i])}
			}
			p.facts.Weights = map[string]float64{"math": -1}
			return p
		}()},

		{"a third out of turns", "turns", "environment.max_turns", healthy().each(func(i int, x *Response) { x.OutOfTurns, x.Truncated = i%3 == 0, i%3 == 0 }).golds(func(int) string { return "7" })},
		{"tags", "form", `set reward.extract = "auto"`, func() *patient {
			p := healthy().each(func(_ int, x *Response) { x.Answer, x.Value, x.Right = "", 0, false })
			p.facts.Extract = "tag"
			return p
		}()},
		{"bare numbers", "form", "ask for the answer in that form", healthy().each(wrong)},
		{"a pattern that nothing meets", "form", "<b>(.*)</b>) never matches", healthy().rewards(func(int, *Response) float64 { return 0 }).set("reward.pattern", "<b>(.*)</b>")},
		{"pays none", "never-paid", "the mean is 0, the most 0", healthy().rewards(func(int, *Response) float64 { return 0 })},
		{"pays all", "pays-all", "every response the same, 1,", healthy().rewards(func(int, *Response) float64 { return 1 })},
		{"pays all a little", "pays-all", "every response the same, 0.3,", healthy().rewards(func(int, *Response) float64 { return 0.3 })},
		{"pays wrong ones", "pays-all", "wrong responses more than right ones", healthy().rewards(func(_ int, x *Response) float64 { return 1 - right(x) })},
		{"by problem", "ignores-response", "depends on the problem and not on the response", healthy().rewards(func(_ int, x *Response) float64 { return float64(x.Problem % 2) })},
		{"random", "random-reward", "earns different rewards", healthy().rewards(func(i int, x *Response) float64 { return float64(i*7919%101) / 101 }).each(twins)},
		{"off by one", "wrong-gold", "by the same 1 in", healthy().golds(func(i int) string { return fmt.Sprint(301 + 4*i) }).sums("")},
		{"reversed digits", "wrong-gold", "by the order of their digits in", healthy().golds(func(i int) string { s := fmt.Sprint(300 + 4*i); return s[2:] + s[1:2] + s[:1] }).sums("")},
		{"another unit", "wrong-gold", "by a factor of 0.01 in", healthy().golds(func(i int) string { return fmt.Sprintf("%.2f", float64(300+4*i)/100) }).sums("")},
		{"rounding", "tiny-spread", "differ by a tiny", healthy().rewards(func(i int, x *Response) float64 { return 0.7 + 1e-7*float64(i%7) })},
		{"small", "small-scale", "rewards are too small", healthy().rewards(func(_ int, x *Response) float64 { return 1e-10 * right(x) })},
		{"length", "length", "longer responses will be learned", healthy().rewards(func(_ int, x *Response) float64 { return float64(x.Tokens) / 40 })},
		{"right answers that are longer", "", "", healthy().rewards(func(_ int, x *Response) float64 { return right(x) }).each(func(_ int, x *Response) { x.Tokens = 12 + 20*int(x.Value) })},
		{"dead part", "dead-part", "the part regex", healthy().each(func(_ int, x *Response) {
			x.Parts = map[string]float64{"math": x.Value, "regex": 0}
		}).weighed()},
		{"paid in full", "", "", healthy().each(func(_ int, x *Response) {
			x.Parts = map[string]float64{"math": x.Value, "regex": 1}
		}).weighed()},
		{"heavy part", "outweighed", "the part regex (weight 1) makes", healthy().each(func(i int, x *Response) {
			x.Parts = map[string]float64{"math": x.Value, "regex": float64(i % 3)}
			x.Value += float64(i % 3)
		}).weighed()},
		{"another column", "wrong-gold", `Set data.answer = "sum"`, healthy().golds(func(i int) string { return fmt.Sprint(5000 + i) })},
		{"another row", "wrong-gold", "that of a row after it (by 1)", func() *patient {
			p := healthy().golds(func(i int) string { return fmt.Sprint(300 + 4*(i-1)) })
			for i := range p.round.Problems {
				p.round.Problems[i].Fields = nil
			}
			p.facts.Neighbor = func(q data.Problem, rows int) []string {
				if i := q.Line - 1 + rows; i >= 0 && i < 16 {
					return p.round.Problems[i].Answers
				}
				return nil
			}
			return p.each(func(i int, x *Response) {
				if i%8 > 1 {
					x.Text, x.Answer = `\boxed{7}`, "7"
				}
			})
		}()},
		{"hexadecimal", "wrong-gold", `has "0x12c" where responses say`, healthy().golds(func(i int) string { return "0x12c" }).each(func(_ int, x *Response) {}).sums("")},
		{"squares", "wrong-gold", "no response meets the answers", healthy().golds(func(i int) string { return fmt.Sprint(2500 * (i + 1) * (i + 1)) }).sums("").each(func(i int, x *Response) {
			x.Answer = fmt.Sprint(50*(x.Problem+1) + i%4)
			x.Text = `\boxed{` + x.Answer + "}"
		})},
		{"too hard as the template asks", "too-hard", `as model.template = "chat" asks`, healthy().golds(func(i int) string { return fmt.Sprint(123456 + i) }).sums("").set("model.template", "chat").each(func(i int, x *Response) {
			x.Text, x.Answer = fmt.Sprintf(`\boxed{%d}`, 9000+i), fmt.Sprint(9000+i)
		})},
		{"too hard", "too-hard", "pass@8 is 0", healthy().golds(func(i int) string { return fmt.Sprint(123456 + i) }).sums("").each(func(i int, x *Response) {
			x.Text, x.Answer = fmt.Sprintf(`\boxed{%d}`, 9000+i), fmt.Sprint(9000+i)
		})},
		{"bare answers", "form", "an answer alone", healthy().golds(func(i int) string { return fmt.Sprint(123456 + i) }).sums("").each(func(i int, x *Response) {
			x.Text, x.Answer = fmt.Sprint(9000+i), fmt.Sprint(9000+i)
		})},
		{"answers as prompts", "wrong-prompt", "the prompts are the answers", func() *patient {
			p := healthy().golds(func(i int) string { return "x" })
			for i := range p.round.Problems {
				p.round.Problems[i].Text = "x"
			}
			return p
		}()},
		{"too easy", "too-easy", "100 % of the responses are right before training", healthy().each(func(_ int, x *Response) {
			x.Answer = fmt.Sprint(300 + 4*x.Problem)
			x.Text, x.Value, x.Right = `\boxed{`+x.Answer+"}", 1, true
		})},
		{"cut in evaluation", "eval-differs", "eval.max_new_tokens = 8", func() *patient {
			p := healthy().set("eval.max_new_tokens", "8")
			p.before = metrics.Record{}.With("eval/s/pass@1", 0.0).With("eval/s/truncated_share", 1.0)
			return p
		}()},

		{"decay", "decay", "8 % in each step", healthy().set("optimizer.weight_decay", "200")},
		{"KL", "kl", "objective.kl_beta = 1000", healthy().set("objective.kl_beta", "1000").steps(step(0, 0.1, 0).With("term_share/kl", 0.9))},
		{"entropy", "entropy", "objective.entropy_bonus = 1", healthy().set("objective.entropy_bonus", "1").steps(step(0, 0.1, 0).With("term_share/entropy", 0.8))},
		{"destroyed", "rate-high", "optimizer.learning_rate", healthy().steps(step(0, 0, 0), step(1, 4, 0.6))},
		{"stale", "stale", "passes over one round", healthy().set("train.epochs", "2").steps(step(0, 0, 0), step(1, 0.3, 0), step(2, 2.2, 0), step(3, 4, 0))},
		{"several passes", "", "", healthy().set("train.epochs", "8").steps(step(0, 0, 0), step(1, 0.3, 0), step(2, 2.2, 0.8))},
		{"clip", "clip", "objective.clip_low = 1e-07", healthy().set("objective.clip_low", "1e-07").steps(step(0, 0, 0), step(1, 0.1, 0.5))},
		{"a sequence's clip", "", "", healthy().steps(step(0, 0, 0), step(1, 0.1, 0.7))},
		{"rate low", "rate-low", "Raise optimizer.learning_rate", healthy().steps(step(0, 1e-6, 0), step(1, 2e-6, 0))},
		{"a step is as large as the weights", "rate-high", "typical size is 0.1", healthy().set("optimizer.learning_rate", "0.1")},
		{"an adapter's rate", "", "", healthy().set("optimizer.learning_rate", "0.1", "lora.on", "true")},
		{"rate low, one step a round", "rate-low", "all 32 steps", healthy().set("optimizer.learning_rate", "1e-9").steps(step(0, 1e-6, 0))},
		{"eps", "small-scale", "Lower optimizer.eps", healthy().set("optimizer.eps", "100").steps(step(0, 1e-6, 0), step(1, 2e-6, 0))},
		{"gradient clip", "small-scale", "Raise optimizer.max_grad_norm", healthy().set("optimizer.max_grad_norm", "1e-10").steps(step(0, 1e-6, 0), step(1, 2e-6, 0))},
	} {
		got := x.p.look()
		switch {
		case x.cause == "" && len(got) > 0:
			t.Errorf("%s: false alarm: %+v", x.name, got)
		case x.cause != "" && (len(got) != 1 || got[0].Cause != x.cause || !strings.Contains(got[0].Text, x.text)):
			t.Errorf("%s: %+v, want %s with %q", x.name, got, x.cause, x.text)
		}
	}
}

// weighed gives the reward two parts.
func (p *patient) weighed() *patient {
	p.facts.Weights = map[string]float64{"math": 1, "regex": 1}
	return p
}

// right is 1 for a response that has the right answer.
func right(x *Response) float64 {
	if x.Text == fmt.Sprintf(`\boxed{%d}`, 300+4*x.Problem) {
		return 1
	}
	return 0
}

// sums sets the column with the right answers.
func (p *patient) sums(text string) *patient {
	for i := range p.round.Problems {
		p.round.Problems[i].Fields[1].Value = text
	}
	return p
}

// TestSupervised: what the losses of a supervised run show.
func TestSupervised(t *testing.T) {
	fall := func(from, to, by float64) (x []float64) {
		for range 40 {
			x, from = append(x, from), max(to, from*by)
		}
		return x
	}
	for _, x := range []struct {
		name, rate, held, cause string
		losses                  []float64
		heldOut                 []float64
	}{
		{"learns", "0.001", "0", "", fall(11, 1, 0.8), nil},
		{"still falls", "0.001", "0", "", fall(11, 3, 0.97), nil},
		{"rises", "0.02", "0", "rate-high", append([]float64{0.3}, fall(6, 2.6, 0.9)...), nil},
		{"rises above what frequencies give", "0.02", "0", "rate-high", append([]float64{1.9}, fall(2.5, 2.3, 0.9)...), nil},
		{"a hard batch", "0.001", "0", "", append(append(fall(1, 1, 1)[:20], 4, 4, 4), fall(1, 1, 1)[:17]...), nil},
		{"frequencies alone", "0.02", "0", "rate-high", fall(13, 2.1, 0.8), nil},
		{"nothing", "1e-5", "0", "rate-low", fall(13, 12.5, 0.99), nil},
		{"by heart", "0.001", "0", "epochs", fall(11, 0.001, 0.5), nil},
		{"certain, as others show", "0.001", "0.1", "", fall(11, 0.001, 0.5), []float64{11, 0.01, 0.012}},
		{"by heart, as others show", "0.001", "0.1", "epochs", fall(11, 0.001, 0.5), []float64{11, 3, 4}},
		{"others get worse", "0.001", "0.1", "rate-high", fall(0.9, 0.8, 0.99), []float64{0.3, 0.64}},
	} {
		d := New(Facts{Settings: map[string]string{"optimizer.learning_rate": x.rate, "data.held_out": x.held, "train.epochs": "40"}, Steps: len(x.losses), Weight: 0.1, Frequency: 2.2})
		got, at := d.Begin(), func(kind string, step int, loss float64) metrics.Record {
			return metrics.Record{}.With("kind", kind).With("step", float64(step)).With("epoch", float64(step)).With("loss", loss)
		}
		for i, loss := range x.losses {
			got = append(got, d.Look(at("step", i+1, loss), nil)...)
		}
		for i, loss := range x.heldOut {
			got = append(got, d.Look(at("eval", len(x.losses)*i/(len(x.heldOut)-1), loss), nil)...)
		}
		if x.cause == "" && len(got) > 0 || x.cause != "" && (len(got) != 1 || got[0].Cause != x.cause) {
			t.Errorf("%s: %+v, want %q", x.name, got, x.cause)
		}
	}
}

// TestSet: a finding with a setting to try keeps it in its record.
func TestSet(t *testing.T) {
	facts := Facts{Settings: map[string]string{"rollout.max_new_tokens": "40"}}
	f := newFinding("cut", "cut").times(&facts, "rollout.max_new_tokens", 2)
	if got, ok := FindingOf(f.Record(1, 2)); !ok || got != *f || got.Set != "rollout.max_new_tokens=80" {
		t.Errorf("%+v, %v", got, ok)
	}
	if f := newFinding("cut", "cut").times(&facts, "environment.max_turns", 2); f.Set != "" {
		t.Errorf("%q is set to a multiple of nothing", f.Set)
	}
}

// TestRight: only a first step with a gradient and no loss is said to be right.
func TestRight(t *testing.T) {
	for _, x := range []struct {
		loss, norm float64
		said       bool
	}{{1e-9, 0.3, true}, {0.1, 0.3, false}, {0, 0, false}} {
		if got := Right([]metrics.Record{metrics.Record{}.With("loss", x.loss).With("grad_norm", x.norm)}); (got != "") != x.said {
			t.Errorf("loss %g, norm %g: %q", x.loss, x.norm, got)
		}
	}
}

func TestProblems(t *testing.T) {
	of := func(pairs ...string) (list []data.Problem) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, data.Problem{Text: pairs[i], Answers: []string{pairs[i+1]}})
		}
		return list
	}
	for _, x := range []struct {
		train, suite []data.Problem
		want         string
	}{
		{of("a", "1", "b", "2", "c", "3"), of("d", "1"), ""},
		{of("a", "1", "a", "1", "b", "2"), nil, "duplicates"},
		{of("a", "1/2", "a", "0.5", "b", "2"), nil, "duplicates"},
		{of("a", "1", "a", "2", "b", "2", "b", "3"), nil, "conflicts"},
		{of("a  x", "1", "b", "2"), of("a x", "1"), "leak"},
		{nil, of("a", "1"), ""},
	} {
		got := ""
		for _, f := range Problems(x.train, map[string][]data.Problem{"s": x.suite}, "") {
			got += f.Cause
		}
		if got != x.want {
			t.Errorf("%v: %q, want %q", x.train, got, x.want)
		}
	}
}

// TestCourse: rules of the course speak once, by more than chance, and a Doctor that is
// restored from its state at any round says the same.
func TestCourse(t *testing.T) {
	type figures struct{ reward, entropy, length, cut, idle, right float64 }
	rounds := func(stop int, list ...figures) (said string) {
		p := healthy()
		d := New(p.facts)
		for n, x := range list {
			if n == stop {
				text, err := json.Marshal(d.State())
				if err != nil {
					t.Fatal(err)
				}
				var s State
				d = New(p.facts)
				if err := json.Unmarshal(text, &s); err != nil || d.Restore(&s) != nil {
					t.Fatal(err)
				}
			}
			round := Round{Problems: p.round.Problems, Steps: p.round.Steps, IdleShare: x.idle}
			for _, r := range p.round.Responses {
				r.Value *= x.reward / 0.2
				round.Responses = append(round.Responses, r)
			}
			if n >= readRounds && x.idle == 1 {
				round.Responses = round.Responses[:8]
			}
			for _, f := range d.Look(metrics.Record{}.With("kind", "round").With("reward", x.reward).With("entropy", x.entropy).With("response_length/mean", x.length).
				With("truncated_share", x.cut).With("right_share", x.right), &round) {
				said += fmt.Sprintf("%d %s; ", n+1, f.Cause)
			}
		}
		return said
	}
	usual := figures{0.2, 0.2, 16, 0, 0.3, 0.2}
	with := func(change func(*figures)) figures { x := usual; change(&x); return x }
	for _, x := range []struct {
		then figures
		want string
	}{
		{with(func(x *figures) { x.reward = 0.18 }), ""},
		{with(func(x *figures) { x.reward = 0.01 }), "6 rate-high; "},
		{with(func(x *figures) { x.length = 40; x.reward = 0.15 }), "5 length; "},
		{with(func(x *figures) { x.length = 40; x.reward = 0.5 }), ""},
		{with(func(x *figures) { x.cut = 0.4 }), "5 cut; "},
		{with(func(x *figures) { x.entropy = 0.01 }), ""},
		{with(func(x *figures) { x.entropy = 0.01; x.idle = 0.8 }), "5 collapse; "},
		{with(func(x *figures) { x.idle = 1 }), "7 nothing; "},
		{with(func(x *figures) { x.right = 0; x.reward = 0.9 }), "5 hacked; "},
	} {
		list := []figures{usual, usual, usual, usual, x.then, x.then, x.then, x.then}
		for stop := range len(list) + 1 {
			if got := rounds(stop, list...); got != x.want {
				t.Errorf("%+v, stopped before round %d: %q, want %q", x.then, stop+1, got, x.want)
			}
		}
	}
	if New(Facts{}).Restore(&State{First: make(metrics.Exact, 9)}) == nil {
		t.Error("a damaged state is taken")
	}
	var old State
	if err := json.Unmarshal([]byte(`{"losses":[0.5],"flat":1,"rounds":4,"first":[1,2,0],"warned":["+Inf",0,0]}`), &old); err != nil || New(Facts{}).Restore(&old) != nil {
		t.Error("the state of an earlier version is refused", err)
	}
}

// TestSteps: a loss that jumps, and the losses of supervised runs.
func TestSteps(t *testing.T) {
	for _, x := range []struct {
		facts  Facts
		losses []float64 // of steps; those behind NaN are held out, and one is
		want   string
	}{
		{healthy().facts, []float64{3}, "loss-jump"},
		{healthy().facts, []float64{0.03}, ""},
		{Facts{}, []float64{3, 4, 5, 6, 7}, "rate-high"},
		{Facts{}, []float64{0.01, 0.005}, ""},
	} {
		d, got := New(x.facts), ""
		for i := range 40 {
			// Steps whose groups all have equal rewards say nothing about other steps.
			for _, loss := range []float64{0.01 * float64(i%5), 1e-9 * float64(i%3)} {
				for _, f := range d.Look(metrics.Record{}.With("kind", "step").With("step", i).With("loss", loss), nil) {
					t.Errorf("%+v", f)
				}
			}
		}
		for _, loss := range x.losses {
			for _, f := range d.Look(metrics.Record{}.With("kind", "step").With("step", 40).With("loss", loss), nil) {
				got += f.Cause
			}
		}
		if !strings.Contains(got, x.want) || x.want == "" && got != "" {
			t.Errorf("%v: %q, want %q", x.losses, got, x.want)
		}
	}
	for rate, want := range map[string]int{"1e-9": 1, "1e-6": 0} {
		if got := New(Facts{Steps: 20, Settings: map[string]string{"optimizer.learning_rate": rate}}).Begin(); len(got) != want {
			t.Errorf("a supervised run with learning rate %s: %+v", rate, got)
		}
	}
	for last, want := range maps.All(map[float64]string{12: "rate-high", 2: "rate-low", 1: ""}) {
		d, got := New(Facts{Steps: 20}), ""
		for step, loss := range map[int]float64{0: 2} {
			d.Look(metrics.Record{}.With("kind", "eval").With("step", step).With("loss", loss), nil)
		}
		for _, f := range d.Look(metrics.Record{}.With("kind", "eval").With("step", 20).With("loss", last), nil) {
			got = f.Cause
		}
		if got != want {
			t.Errorf("held-out loss 2, then %v: %q, want %q", last, got, want)
		}
	}
}
