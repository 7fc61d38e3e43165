package tokenize

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Template makes a prompt of a question by putting text around it. Unlike a
// chat template it belongs to the training recipe, not to the model: base models
// are trained with it from their first step. Custom ones are literals:
//
//	Template{Name: "plain", Prefix: "Question: ", Suffix: "\nAnswer:", Stops: []string{"\n\n"}}
type Template struct {
	Name           string
	Prefix, Suffix string
	// Stops are strings that end a response, besides EOS. They stay in it.
	Stops []string
}

// The templates of the paper's experiments, from sail-sg/understand-r1-zero.
var templates = map[string]Template{
	"qwen_math": {
		Prefix: "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>user\n",
		Suffix: "<|im_end|>\n<|im_start|>assistant\n",
	},
	"r1": {
		Prefix: "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. " +
			"The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. " +
			"The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, respectively, " +
			"i.e., <think> reasoning process here </think> <answer> answer here </answer>.\nUser: ",
		Suffix: "\nAssistant: <think>",
		Stops:  []string{"</answer>"},
	},
	"no": {},
}

// Templates returns the names that LookupTemplate knows, sorted.
func Templates() []string { return slices.Sorted(maps.Keys(templates)) }

// LookupTemplate returns the template of that name: qwen_math, r1 or no.
func LookupTemplate(name string) (Template, error) {
	t, ok := templates[name]
	if !ok {
		return Template{}, fmt.Errorf("tokenize: unknown template %q (have %s)", name, strings.Join(Templates(), ", "))
	}
	t.Name, t.Stops = name, slices.Clone(t.Stops)
	return t, nil
}

// Render returns the prompt for question.
func (t Template) Render(question string) string { return t.Prefix + question + t.Suffix }
