// Package regex is the reward for the form of a response: whether it has a named
// format, whether it matches a regular expression of the user's, and whether what
// the expression captures is one of the problem's answers.
package regex

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync/atomic"

	"onering/internal/settings"
	"onering/reward"
	"onering/reward/texts"
)

func init() { reward.Register("regex", func() reward.Reward { return newRule() }) }

// A rule is the reward "regex". Use it by pointer.
type rule struct {
	Format        string   `toml:"format" choice:"auto none think think_answer boxed json" note:"auto is none where a pattern is set, else think" help:"form that the response must have; in an episode each turn must begin with its thought, and one box is in all turns"`
	Keys          []string `toml:"keys" help:"keys that the object must have, for format = \"json\""`
	Pattern       string   `toml:"pattern" help:"regular expression (of Go, which is RE2's) that the response must match"`
	Search        bool     `toml:"search" help:"let the pattern match anywhere, and the last match count; without it the whole response must match, up to white space around it"`
	CompareGroup  bool     `toml:"compare" help:"want the first group of the pattern to be one of the answers, too"`
	After         string   `toml:"after" help:"a mark such as </think>: only what follows the last of them counts, and a response without one does not match"`
	Match         float64  `toml:"match" help:"the reward of a match"`
	NoMatch       float64  `toml:"no_match" help:"the reward of other responses, and of truncated ones"`
	texts.Compare          // compares the captured text

	compiled atomic.Pointer[expression]
}

// An expression is a compiled pattern.
type expression struct {
	pattern string
	search  bool
	*regexp.Regexp
}

// newRule returns the reward with its defaults.
func newRule() *rule {
	return &rule{Format: "auto", Match: 1, Compare: texts.Compare{Whitespace: "trim", Unicode: "nfc"}}
}

// About is the reward's line in lists.
func (*rule) About() string {
	return "1 for a response in a form: think tags, one box, JSON, or a regular expression of yours"
}

// Validate refuses an invalid pattern, and settings that have no effect together. Each
// error is a *settings.Error.
func (r *rule) Validate() error {
	var errs settings.Errors
	groups := 0
	if re, err := r.expression(); err != nil {
		errs.Want("pattern", r.Pattern, false, err.Error())
	} else {
		groups = re.NumSubexp()
	}
	errs.Want("pattern", r.Pattern, r.Format != "none" || r.Pattern != "", "must be set where format is none")
	errs.Want("search", r.Search, !r.Search || r.Pattern != "", "needs a pattern")
	errs.Want("compare", r.CompareGroup, !r.CompareGroup || groups > 0, `needs a pattern with a group in parentheses, such as (\d+)`)
	errs.Want("keys", r.Keys, len(r.Keys) == 0 || r.Format == "json", `needs format = "json"`)
	errs.Want("match", r.Match, !math.IsNaN(r.Match) && !math.IsInf(r.Match, 0), "must be a finite number")
	errs.Want("no_match", r.NoMatch, !math.IsNaN(r.NoMatch) && !math.IsInf(r.NoMatch, 0), "must be a finite number")
	errs.Want("match", r.Match, r.Match != r.NoMatch, "must not be what no_match is")
	return errors.Join(errs...)
}

// expression compiles the pattern, once for all responses.
func (r *rule) expression() (*regexp.Regexp, error) {
	if e := r.compiled.Load(); e != nil && e.pattern == r.Pattern && e.search == r.Search {
		return e.Regexp, nil
	}
	re, err := regexp.Compile(r.Pattern)
	if err == nil && !r.Search {
		re, err = regexp.Compile(`\A(?:` + r.Pattern + `)\z`)
	}
	if err == nil {
		r.compiled.Store(&expression{r.Pattern, r.Search, re})
	}
	return re, err
}

// NeedsAnswers says whether the pattern's group is compared with the answers.
func (r *rule) NeedsAnswers() bool { return r.CompareGroup }

// Score gives Match or NoMatch to each response.
func (r *rule) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	if r.Pattern != "" {
		if _, err := r.expression(); err != nil {
			return nil, fmt.Errorf("reward.pattern: %w", err)
		}
	}
	return reward.Each(group, r.score), nil
}

// score gives a response Match if it has the format and the pattern matches, where one is set, else
// NoMatch with the reason, and what the pattern captured as its answer.
func (r *rule) score(sample reward.Sample) reward.Score {
	golds := r.Normals(sample.Problem.Answers)
	if r.CompareGroup && len(golds) == 0 {
		return reward.Score{Status: reward.Error, Reason: "the problem has no answer"}
	}
	miss := reward.Score{Value: r.NoMatch}
	text, ok := texts.Extract{After: r.After}.Rest(sample.Response)
	switch {
	case sample.Truncated:
		miss.Reason = "truncated"
		return miss
	case !ok:
		miss.Reason = "no " + r.After + " in the response"
		return miss
	}
	if miss.Reason = r.format(sample, text); miss.Reason != "" {
		return miss
	}
	if r.Pattern != "" {
		var status reward.Status
		if miss.Answer, miss.Reason, status = r.match(text); status != reward.OK {
			return reward.Score{Status: status, Reason: miss.Reason}
		}
		switch {
		case miss.Reason != "":
			return miss
		case r.CompareGroup && !golds[miss.Answer]:
			miss.Reason = "another text"
			return miss
		}
	}
	return reward.Score{Value: r.Match, Answer: miss.Answer, Reason: "a match"}
}

// mostSteps bounds a search: bytes of the text times matches in it. Finding a match may
// read the whole rest of the text.
const mostSteps = 1 << 24

// match returns the normal form of the text that the pattern's first group captures in s.
// If the pattern does not match, the reason says so.
func (r *rule) match(s string) (captured, reason string, status reward.Status) {
	re, err := r.expression()
	if err != nil { // Score has checked it
		return "", err.Error(), reward.Error
	}
	most := 1
	if r.Search {
		most = max(1, mostSteps/(len(s)+1)) // to find a match may take a step for each byte
	} else {
		s = strings.TrimSpace(s)
	}
	found := re.FindAllStringSubmatchIndex(s, most+1)
	switch {
	case len(found) == 0:
		return "", "the pattern does not match", reward.OK
	case len(found) > most:
		return "", "the pattern matches too often", reward.Limit
	}
	if last := found[len(found)-1]; len(last) > 2 && last[2] >= 0 { // the pattern has a group, and it took part
		captured = r.Normal(s[last[2]:last[3]])
	}
	return captured, "", reward.OK
}
