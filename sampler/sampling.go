package sampler

import (
	"fmt"
	"slices"

	"onering/internal/settings"
)

// A Sampling says how tokens are chosen and how long a response may be. It is the one declaration of these
// settings: the run file's [rollout] and [eval], the flags of the commands that sample, Options, Decoder and
// reports of evaluations all use it.
//
// The filters apply after the temperature in the order top_k, top_p, min_p, each to what the one before has
// kept, as in Hugging Face transformers and SGLang; vLLM applies min_p before the other two. They restrict the
// choice and nothing else: log-probs and entropies are those of softmax(logits/Temperature) over the whole
// vocabulary, greedy or not, which is what the learner computes too (D25), unless Options.Kept asks for those
// over what was kept (D83).
type Sampling struct {
	// Greedy decoding ignores the filters and the uniforms. A run file and a flag ask for
	// it by a temperature of 0, where greedy decoding is allowed.
	Greedy       bool    `toml:"-" flag:"greedy" json:"greedy" help:"take the likeliest token"`
	Temperature  float64 `toml:"temperature" json:"temperature" range:"[0.001,1000]" help:"divisor of the logits"`
	TopP         float64 `toml:"top_p" json:"top_p" range:"(0,1]" note:"1 turns it off" help:"keep the smallest set of likeliest tokens that holds this share of the probability"`
	TopK         int     `toml:"top_k" json:"top_k" range:"[0,1073741824]" note:"0 turns it off" help:"keep this many of the likeliest tokens"`
	MinP         float64 `toml:"min_p" json:"min_p,omitempty" range:"[0,1)" note:"0 turns it off" help:"keep the tokens whose probability is at least this share of the largest one"`
	MaxNewTokens int     `toml:"max_new_tokens" flag:"max-tokens" json:"max_tokens" range:"[1,16777216]" help:"most tokens of a response, the end-of-sequence token included; one that reaches it is truncated"`
}

// Plain is a Sampling without filters, at temperature 1.
func Plain(maxNewTokens int) Sampling {
	return Sampling{Temperature: 1, TopP: 1, MaxNewTokens: maxNewTokens}
}

// Greedy is a Sampling that takes the likeliest token, with log-probs at temperature 1.
func Greedy(maxNewTokens int) Sampling {
	return Sampling{Greedy: true, Temperature: 1, TopP: 1, MaxNewTokens: maxNewTokens}
}

// leastTemperature is the lower end of the range of Temperature.
const leastTemperature = 0.001

// OrGreedy returns s, or if the temperature of s is 0, or as near to 0 as 1e-8, greedy
// decoding with log-probs at temperature 1.
func (s Sampling) OrGreedy() Sampling {
	if s.Temperature >= 0 && s.Temperature < leastTemperature {
		s.Greedy, s.Temperature = true, 1
	}
	return s
}

// Drawing lists the settings of s that have no effect on greedy decoding: the temperature and the filters.
func (s Sampling) Drawing() []settings.Field {
	return slices.DeleteFunc(settings.Fields(&s), func(f settings.Field) bool {
		return f.Flag == "greedy" || f.Key == "max_new_tokens"
	})
}

// Describe says in words how tokens are chosen, such as "T=0.6, top-p 0.95".
func (s Sampling) Describe() string {
	if s.Greedy {
		return "greedy"
	}
	text, off := fmt.Sprintf("T=%g", s.Temperature), Plain(s.MaxNewTokens).Drawing()
	for i, f := range s.Drawing()[1:] {
		if !f.Value.Equal(off[i+1].Value) {
			text += fmt.Sprintf(", %s %v", f.Flag, f.Value)
		}
	}
	return text
}
