package verifier_test

import (
	"fmt"
	"strings"
	"testing"

	"onering/verifier"
	"onering/verifier/internal/rules"
)

// A trial is one verdict of TestRules.
type trial struct {
	id       string
	v        verifier.Verifier
	golds    []string
	response string
	correct  bool
}

// trials are the shared sets in three groups: real golds and responses, reported forms, attacks.
func trials(t *testing.T) map[string][]trial {
	groups := map[string][]trial{}
	add := func(group, id string, v verifier.Verifier, gold any, response string) {
		one := trial{id: id, v: v, response: response}
		for _, g := range []any{gold} {
			if list, ok := g.([]any); ok {
				for _, g := range list {
					one.golds = append(one.golds, fmt.Sprint(g))
				}
				continue
			}
			one.golds = append(one.golds, fmt.Sprint(g))
		}
		one.correct = v.VerifyAny(one.golds, response).Correct
		groups[group] = append(groups[group], one)
	}
	var plain, boxed verifier.Verifier
	boxed.Mode = verifier.Boxed
	for _, gold := range benchmarkGolds(t) {
		if strings.Trim(gold, "-0123456789") != "" {
			add("real", "gold "+gold, boxed, gold, `\boxed{\displaystyle `+strings.ReplaceAll(inFormula(gold), "\x00", `\$`)+`}`)
		}
	}
	type row struct {
		ID, Template, Response, Pred, Class string
		Gold                                any
		Set                                 map[string]string
	}
	for _, r := range sharedSet[cot](t, "math_cot_100.jsonl") {
		add("real", fmt.Sprint(r.Problem, " ", r.Sample), plain, r.Gold, r.Response)
	}
	for _, set := range []string{"math_verify_tests", "reports", "reports3", "exploits", "exploits2", "exploits3", "adversarial"} {
		for _, r := range sharedSet[row](t, set+".jsonl") {
			group, v := "reported", plain
			if set == "adversarial" {
				group = "attacks"
			} else if strings.HasPrefix(set, "exploits") {
				if group, v = "attacks", boxed; r.Class == "context" || r.Set != nil && r.Set["reward.name"] != "math" {
					continue
				}
			}
			if r.Template == "r1" || r.Set["reward.extract"] == "tag" {
				v = verifier.Verifier{Mode: verifier.Tag, Strict: true}
			}
			add(group, r.ID, v, r.Gold, r.Response+r.Pred)
		}
	}
	return groups
}

// TestRules switches each rule off and counts the verdicts that change. A rule that decides
// none has not earned its lines.
func TestRules(t *testing.T) {
	groups := trials(t)
	defer rules.SwitchOff("")
	t.Logf("%-8s %-8s %-8s rule", "real", "reported", "attacks")
	for _, rule := range rules.All {
		rules.SwitchOff(rule[0])
		counts, example := map[string]int{}, ""
		for _, group := range []string{"attacks", "reported", "real"} {
			for _, one := range groups[group] {
				if one.v.VerifyAny(one.golds, one.response).Correct != one.correct {
					counts[group]++
					example = one.id
				}
			}
		}
		t.Logf("%-8d %-8d %-8d %s (%s)", counts["real"], counts["reported"], counts["attacks"], strings.Join(rule[:], ": "), example)
		if len(counts) == 0 {
			t.Errorf("no verdict depends on the rule %q", rule[0])
		}
	}
}
