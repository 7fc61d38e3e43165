package rl

import (
	"context"
	"fmt"
	"slices"
	"time"

	"onering/internal/memory"
	"onering/objectives"
	"onering/reward"
	"onering/tokenize"
	"onering/train/doctor"
	"onering/train/metrics"
)

// A Probe is what some responses tell of a run before it begins.
type Probe struct {
	Ways []Probed `json:"ways"` // in the run's template, and in another one where there is one to compare with
	// Round and Run are seconds, as long as the responses stay as they are.
	Round   float64          `json:"seconds_per_round"`
	Run     float64          `json:"seconds"`
	Planned []doctor.Finding `json:"planned,omitempty"` // what the data and the settings alone show
	Found   []doctor.Finding `json:"diagnoses"`
}

// A Probed is how problems are answered in a template.
type Probed struct {
	Template string         `json:"template"`
	PassAt   *float64       `json:"pass@8,omitempty"` // share of the problems with a right response; nil where the reward does not judge
	Record   metrics.Record `json:"figures"`
}

// Lines says what a probe has measured, in lines of a name and a text; the findings are not among them.
func (p Probe) Lines() (lines [][2]string) {
	for _, w := range p.Ways {
		text := fmt.Sprintf("reward %.3f", w.Record.Float("reward"))
		if w.PassAt != nil {
			text += fmt.Sprintf(", pass@8 %.2f", *w.PassAt)
		}
		for _, x := range [][2]string{
			{"truncated_share", "cut off"}, {"no_answer_share", "without an answer"}, {"frac_reward_zero_std", "of the groups with equal rewards"},
		} {
			if share := w.Record.Float(x[0]); share > 0 {
				text += fmt.Sprintf(", %.0f %% %s", 100*share, x[1])
			}
		}
		lines = append(lines, [2]string{"template " + w.Template, fmt.Sprintf("%s, %.0f tokens", text, w.Record.Float("response_length/mean"))})
	}
	if p.Round > 0 {
		lines = append(lines, [2]string{"time", fmt.Sprintf("about %s a round, %s in all", metrics.About(p.Round), metrics.About(p.Run))})
	}
	return lines
}

// probeSize is the number of problems of a probe, and of the responses to each.
const probeSize = 8

// Probe samples responses to some problems of the first round, and changes nothing. It reads them
// as those of a round are read, estimates the times of a round and of the run, and compares the run's template with
// none, or where the run has none with the model's chat template.
func (t *trainer) Probe(ctx context.Context) (p Probe, err error) {
	defer func() {
		for _, x := range []interface{ Release() }{t.roller, t.run.Stepper} {
			memory.GiveBack(t.roller.policy.Weights.Parameters(), x)
		}
		t.round = nil
	}()
	began := time.Now()
	way, err := sampleProbe(ctx, t, t.roller) // sets t.round
	if err != nil {
		return p, fmt.Errorf("train: probe: %w", err)
	}
	sampled := time.Since(began).Seconds()
	p.Ways = append(p.Ways, way)
	seen := t.evidence(way.Record.Float("frac_reward_zero_std")) // no step was taken, but groups with equal rewards would teach nothing
	reader := doctor.New(t.facts())
	p.Planned = reader.Begin()
	p.Found = reader.Look(append(metrics.Record{}.With("kind", "round").With("round", 0).With("step", 0), way.Record...), seen)
	began = time.Now()
	if _, err = t.run.Stepper.Score(ctx, t.round.sequences); err != nil { // only to measure a forward pass
		return p, err
	}
	// A step goes forward, forward again and backward, which takes as long as two forward passes.
	learned := 4 * float64(t.Config.Train.Epochs) * time.Since(began).Seconds()
	p.Round = (sampled + learned) * float64(t.Config.Rollout.PromptsPerRound*t.Config.samplesPerPrompt()) / float64(len(t.round.rollouts))
	p.Run = p.Round * float64(t.Config.Train.Rounds)
	other, tokens := *t.roller, t.roller.prompter.Tokenizer
	name := "no"
	if slices.Contains([]string{"no", "concat"}, other.prompter.Template.Name) {
		name = "chat"
	}
	template, err := tokenize.ParseTemplate(name)
	if err != nil || other.player != nil || name == "chat" && tokens.CheckChat() != nil { // nothing to compare with
		return p, err
	}
	if other.prompter, err = other.policy.Prompter(template); err == nil && other.policy.Ends(&other.options, template) == nil {
		if way, err = sampleProbe(ctx, t, &other); err == nil {
			p.Ways = append(p.Ways, way)
			now, then := p.Ways[0].Record.Float("reward"), way.Record.Float("reward")
			if then > now+0.15 || now <= 0 && then > 0.05 {
				f := &doctor.Finding{Cause: "template", Text: fmt.Sprintf("the same problems earn %.3f with the template %s and %.3f with %s: "+
					"set model.template = %q", then, name, now, p.Ways[0].Template, name)}
				p.Found = []doctor.Finding{*f.With("model.template", name)} // in place of what the wrong template has caused
			}
		}
	}
	return p, ctx.Err() // other errors only say that the other template does not fit the problems
}

// sampleProbe samples and grades the responses of a probe with the template of from, a roller of t's. They become the
// round of t, with the figures that otherwise compareGroups counts.
func sampleProbe(ctx context.Context, t *trainer, from *roller) (way Probed, err error) {
	r := *from // a copy, whose group size the probe sets
	r.config.Rollout.SamplesPerPrompt = probeSize
	problems := r.problems.Round(0)
	problems = problems[:min(probeSize, len(problems))]
	rollouts, stats, err := r.sample(ctx, problems, 0, func() { t.run.Observer.Advance(1) })
	if err != nil {
		return way, err
	}
	t.round = newRound(problems, rollouts, probeSize)
	t.round.stats, t.round.groups = stats, len(problems)
	judged, solved := 0.0, 0.0 // numbers of problems with such a response
	for i := range problems {
		graded, group := t.round.gradedAmong(i*probeSize, (i+1)*probeSize)
		differs := func(x objectives.Trajectory) bool { return x.Reward != group[0].Reward }
		isJudged := func(j int) bool { return t.round.rollouts[j].Score.Judged() }
		isRight := func(j int) bool { return isJudged(j) && t.round.rollouts[j].Score.Right() }
		if !slices.ContainsFunc(group, differs) { // also where no response has a grade
			t.round.equalGroups++
		}
		if slices.ContainsFunc(graded, isJudged) {
			judged++
		}
		if slices.ContainsFunc(graded, isRight) {
			solved++
		}
	}
	way = Probed{Template: r.prompter.Template.Name, Record: t.round.metrics(reward.FindsAnswers(r.reward))}
	if judged > 0 {
		solved /= judged
		way.PassAt = &solved
	}
	return way, nil
}
