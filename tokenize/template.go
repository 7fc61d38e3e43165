package tokenize

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Template makes a prompt out of a problem by putting text around it. It belongs
// to the training recipe: base models are trained with it from their first step.
// Chat is the exception: it stands for the chat template of the model's tokenizer,
// with the problem as the message of the user.
type Template struct {
	Name           string // as given to ParseTemplate
	Prefix, Suffix string
	// Stops are strings that end a response, besides EOS. They stay in it.
	Stops []string
	// Chat makes Tokenizer.Prompt render the chat template; Prefix and Suffix are
	// not used then. System is the system message; if it is empty there is none. Args
	// are further names that the chat template reads.
	Chat bool
	// Auto templates leave prompts that are conversations to the chat template;
	// Prefix and Suffix go around texts.
	Auto   bool
	System string
	Args   ArgTexts
}

// placeholder stands for the problem in a template that is a text.
const placeholder = "{problem}"

// DefaultTemplate is the name of the template that is used where none is named.
const DefaultTemplate = "auto"

// The template qwen_math.
const (
	qwenMathPrefix = "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>user\n"
	qwenMathSuffix = "<|im_end|>\n<|im_start|>assistant\n"
)

// The templates of the paper's experiments, from sail-sg/understand-r1-zero, and
// those that use the tokenizer's.
var templates = map[string]Template{
	"auto":      {Auto: true, Prefix: qwenMathPrefix, Suffix: qwenMathSuffix},
	"qwen_math": {Prefix: qwenMathPrefix, Suffix: qwenMathSuffix},
	"r1": {
		Prefix: "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. " +
			"The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. " +
			"The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, respectively, " +
			"i.e., <think> reasoning process here </think> <answer> answer here </answer>.\nUser: ",
		Suffix: "\nAssistant: <think>",
		Stops:  []string{"</answer>"},
	},
	"no":   {},
	"chat": {Chat: true},
}

// Templates returns the names that ParseTemplate knows, sorted.
func Templates() []string { return slices.Sorted(maps.Keys(templates)) }

// ParseTemplate returns the template of that name (auto, qwen_math, r1, no, chat), or the
// template that text itself is: a text with {problem} in it, once. Other braces have
// no meaning.
func ParseTemplate(text string) (Template, error) {
	if t, ok := templates[text]; ok {
		t.Name, t.Stops = text, slices.Clone(t.Stops)
		return t, nil
	}
	prefix, suffix, ok := strings.Cut(text, placeholder)
	switch {
	case !ok:
		return Template{}, fmt.Errorf("tokenize: unknown template %q (have %s, or write a text with %s in it)", text, strings.Join(Templates(), ", "), placeholder)
	case strings.Contains(suffix, placeholder):
		return Template{}, fmt.Errorf("tokenize: the template %q has %s more than once", text, placeholder)
	}
	return Template{Name: text, Prefix: prefix, Suffix: suffix}, nil
}

// Render returns the prompt for a problem. It does not do so for a chat template,
// which needs its tokenizer: see Tokenizer.Prompt.
func (t Template) Render(problem string) string { return t.Prefix + problem + t.Suffix }

// Prompt renders a problem in a template and encodes it. Only a chat template
// returns errors: the tokenizer may have none, or one that refuses a system message.
func (t *Tokenizer) Prompt(around Template, problem string) (text string, ids []int32, err error) {
	if !around.Chat {
		text = around.Render(problem)
		return text, t.Encode(text), nil
	}
	chat, err := around.Around(Talk(Message{Role: "user", Content: problem}))
	if err != nil {
		return "", nil, err
	}
	return t.EncodeChat(chat)
}

// CheckKnown is the tokenizer's, of a text that Prompt has made of the template. It says so
// where the template alone has characters that are not known.
func (t Template) CheckKnown(tokenizer *Tokenizer, text string) error {
	err := tokenizer.CheckKnown(text)
	if err == nil {
		return nil
	}
	if bare, _, failed := tokenizer.Prompt(t, ""); failed == nil && tokenizer.CheckKnown(bare) != nil {
		return fmt.Errorf("%w: the template %q writes it; set model.template (--template) to another, such as no", err, t.Name)
	}
	return err
}

// Reads reports whether what a tokenizer makes of a conversation may depend on a name.
func (Template) Reads(t *Tokenizer, name string) bool {
	reads := strings.Contains(t.chat.plain.source, name)
	for _, text := range t.chat.named {
		reads = reads || strings.Contains(text.source, name)
	}
	return reads
}

// Around returns a conversation with the template's system message and arguments where
// it has none of its own.
func (t Template) Around(chat Conversation) (Conversation, error) {
	args, err := t.Args.Parse()
	if err != nil {
		return chat, fmt.Errorf("tokenize: template_args: %w", err)
	}
	instructs := func(m Message) bool { return m.Role == "system" || m.Role == "developer" }
	if t.System != "" && !slices.ContainsFunc(chat.Messages, instructs) {
		chat.Messages = slices.Insert(slices.Clone(chat.Messages), 0, Message{Role: "system", Content: t.System})
	}
	chat.Args = chat.Args.Over(args)
	return chat, nil
}
