package tokenize

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"onering/internal/settings"
)

// A Template makes a prompt out of a problem by putting text around it. It belongs to the training recipe: base
// models are trained with it from their first step. Chat is the exception: it stands for the chat template of
// the model's tokenizer, with the problem as the message of the user.
type Template struct {
	Name           string // as given to ParseTemplate
	Prefix, Suffix string
	// Stops are strings that end a response, besides EOS. They stay in it.
	Stops []string
	// Chat makes Tokenizer.Prompt render the chat template, with Prefix and Suffix around
	// the problem in the user's message. System is the system message; if it is empty
	// there is none. Args are further arguments of the chat template.
	Chat bool
	// Auto templates leave prompts that are conversations to the chat template; Prefix and Suffix go around texts.
	Auto   bool
	System string
	Args   ArgTexts
	// Columns are the names in braces, besides problem, of a template that is a text: Fill
	// puts the values of a row in their places.
	Columns []string

	parts        []string // the text, a name, the text behind it ...
	lacksProblem bool     // it has no place for the problem
}

// problemName is the name of the problem, in braces, in a template that is a text.
const problemName = "problem"

// DefaultTemplate is the name of the default template.
const DefaultTemplate = "auto"

// The template qwen_math.
const (
	instruction    = "Please reason step by step, and put your final answer within \\boxed{}."
	qwenMathPrefix = "<|im_start|>system\n" + instruction + "<|im_end|>\n<|im_start|>user\n"
	qwenMathSuffix = "<|im_end|>\n<|im_start|>assistant\n"
)

// The conversation of DeepSeek-R1-Zero's prompt.
const (
	conversation = "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. " +
		"The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. "
	tags = "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, respectively, " +
		"i.e., <think> reasoning process here </think> <answer> answer here </answer>."
)

// The templates of the paper's experiments, from sail-sg/understand-r1-zero, those that
// its evaluation uses for other models, and those that use the tokenizer's.
var templates = map[string]Template{
	"auto":      {Auto: true, Prefix: qwenMathPrefix, Suffix: qwenMathSuffix},
	"concat":    {Auto: true},
	"qwen_math": {Prefix: qwenMathPrefix, Suffix: qwenMathSuffix},
	"r1": {
		Prefix: conversation + tags + "\nUser: ",
		Suffix: "\nAssistant: <think>",
		Stops:  []string{"</answer>"},
	},
	"open-reasoner-zero": {
		Prefix: conversation + tags + " User: You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. " +
			"And your final answer will be extracted automatically by the \\boxed{} tag.\nThis is the problem:\n",
		Suffix: "\nAssistant: <think>",
	},
	"prime-zero": {
		Prefix: "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. " +
			"The assistant first thinks about the reasoning process in the mind and then provides the user with the answer. " +
			"The reasoning process and answer are enclosed within <think> </think> and <answer> </answer> tags, respectively, " +
			"i.e., <think> reasoning process here </think> <answer> answer here </answer>. User: ",
		Suffix: "\n\nPresent the answer in LaTex format: \\boxed{Your answer}. Assistant:",
	},
	"llama-instruct": {Chat: true, Suffix: "\n" + instruction + "\n\n"},
	"r1d":            {Chat: true},
	"no":             {},
	"chat":           {Chat: true},
}

// Templates returns the names that ParseTemplate knows, sorted.
func Templates() []string { return slices.Sorted(maps.Keys(templates)) }

// ParseTemplate returns the template of that name (those of Templates), or the template that text itself is: a
// text with {problem} in it, once, or with the names of columns in braces. Braces that are an argument in
// LaTeX, as in \boxed{answer}, and doubled ones, as in {{answer}} for {answer}, name nothing.
func ParseTemplate(text string) (Template, error) {
	if t, ok := templates[text]; ok {
		t.Name, t.Stops = text, slices.Clone(t.Stops)
		return t, nil
	}
	t := Template{Name: text, parts: partsOf(text)}
	problems := 0
	for i := 1; i < len(t.parts); i += 2 { // the odd parts are names
		switch name := t.parts[i]; {
		case name == problemName:
			problems++
		case !slices.Contains(t.Columns, name):
			t.Columns = append(t.Columns, name)
		}
	}
	switch {
	case len(t.parts) == 1:
		return Template{}, fmt.Errorf("tokenize: unknown template %q (have %s, or write a text with {problem} in it)", text, strings.Join(Templates(), ", "))
	case problems > 1:
		return Template{}, fmt.Errorf("tokenize: the template %q has {problem} more than once", text)
	}
	return t.filled(nil), nil // nil: Fill puts the values of columns in, row by row
}

var inBraces = regexp.MustCompile(`\{\{[A-Za-z_][\w.]*\}\}|\{[A-Za-z_][\w.]*\}`)

// inLaTeX matches a text after which a brace opens an argument.
var inLaTeX = regexp.MustCompile(`(\\[A-Za-z]*|[\^_])$`)

// partsOf splits a template at the names in braces; the odd parts are names. Braces that are an argument in LaTeX stay
// as they are, but for {problem}, and doubled ones become single ones.
func partsOf(text string) []string {
	parts := []string{""}
	last := &parts[0] // the text so far
	argument := false // the text before was an argument in LaTeX
	for {
		at := inBraces.FindStringIndex(text)
		if at == nil {
			*last += text
			return parts
		}
		before, found := text[:at[0]], text[at[0]:at[1]]
		name := strings.Trim(found, "{}")
		*last += before
		argument = inLaTeX.MatchString(before) || argument && before == "" // \frac{a}{b} has two
		switch text = text[at[1]:]; {
		case found == "{"+problemName+"}" || !argument && !strings.HasPrefix(found, "{{"):
			parts = append(parts, name, "")
			last, argument = &parts[len(parts)-1], false
		case argument:
			*last += found
		default:
			*last += "{" + name + "}"
		}
	}
}

// filled sets Prefix and Suffix, the texts before and behind {problem}, from the parts, with values in place of the
// names of columns; nil leaves them out. A template without {problem} has all in Prefix.
func (t Template) filled(values map[string]string) Template {
	into := &t.Prefix
	for i, part := range t.parts {
		switch {
		case i%2 == 0:
			*into += part
		case part == problemName:
			into = &t.Suffix
		default:
			*into += values[part]
		}
	}
	t.lacksProblem = into == &t.Prefix
	return t
}

// Fill returns the template with the values of a row in place of the names of columns.
func (t Template) Fill(value func(column string) (string, error)) (Template, error) {
	if len(t.Columns) == 0 {
		return t, nil
	}
	values := map[string]string{}
	for _, name := range t.Columns {
		text, err := value(name)
		if err != nil {
			return t, fmt.Errorf("the template names {%s}: %w; braces of a text are doubled, as in {{%s}}", name, err, name)
		}
		values[name] = text
	}
	t.Prefix, t.Suffix, t.Columns = "", "", nil
	return t.filled(values), nil
}

// Render returns the prompt for a problem. It does not do so for a chat template,
// which needs its tokenizer: see Tokenizer.Prompt.
func (t Template) Render(problem string) string {
	if t.lacksProblem {
		return t.Prefix
	}
	return t.Prefix + problem + t.Suffix
}

// Prompt renders a problem in a template and encodes it. A chat template returns errors: the tokenizer may have
// none, or one that refuses a system message; and so does a template with columns that were not filled in.
func (t *Tokenizer) Prompt(around Template, problem string) (text string, ids []int32, err error) {
	switch {
	case len(around.Columns) > 0:
		return "", nil, fmt.Errorf("the template names {%s}, a column, and there is no row of a file here", around.Columns[0])
	case around.Auto && around.Foreign(t) && t.CheckChat() == nil: // auto's own text is in Qwen's format, which t has no tokens for
		for _, c := range instructed(problem) { // two ways to state the instruction: the first that the template takes
			if text, ids, err = t.EncodeChat(c); err == nil {
				break
			}
		}
		return text, ids, err
	case !around.Chat:
		text = around.Render(problem)
		return text, withoutDouble(t.Encode(text), len(t.idsBefore)), nil // the template may begin with BOS itself
	}
	chat, err := around.Around(Talk(Message{Role: "user", Content: around.Render(problem)}))
	if err != nil {
		return "", nil, err
	}
	return t.EncodeChat(chat)
}

// Foreign says whether the template writes Qwen's chat format, and the tokenizer does not know
// its tokens. Then auto is the tokenizer's chat template, if it has one.
func (t Template) Foreign(k *Tokenizer) bool {
	_, known := k.ID("<|im_start|>")
	return !known && t.Prefix == qwenMathPrefix
}

// Instruction is the instruction to answer in a box that the template adds to a text, "" if it adds none.
func (t Template) Instruction() string {
	if strings.Contains(t.Prefix+t.Suffix, instruction) {
		return instruction
	}
	return ""
}

// Talks says whether prompts in the template are turns of a chat that the tokenizer's chat template can continue.
func (t Template) Talks(k *Tokenizer) bool {
	return (t.Chat || t.Auto || t.Prefix == qwenMathPrefix) && k.CheckChat() == nil
}

// instructed returns two conversations that ask for a problem with the instruction of qwen_math: as the system
// message, and, for templates that refuse one, in front of the problem.
func instructed(problem string) [2]Conversation {
	user := Message{Role: "user", Content: problem}
	inSystem := Talk(Message{Role: "system", Content: instruction}, user)
	user.Content = instruction + "\n\n" + problem
	return [2]Conversation{inSystem, Talk(user)}
}

// withoutDouble returns ids without the first n, such as BOS, if the text began with the n tokens that Encode adds.
func withoutDouble(ids []int32, n int) []int32 {
	if len(ids) >= 2*n && slices.Equal(ids[:n], ids[n:2*n]) {
		return ids[n:]
	}
	return ids
}

// CheckKnown calls the tokenizer's CheckKnown for a text that Prompt made from the
// template. The error says so if the template itself has unknown characters.
func (t Template) CheckKnown(tokenizer *Tokenizer, text string) error {
	err := tokenizer.CheckKnown(text)
	if err == nil {
		return nil
	}
	if bare, _, failed := tokenizer.Prompt(t, ""); failed == nil && tokenizer.CheckKnown(bare) != nil {
		return settings.About(fmt.Errorf("%w: the template %q writes it; set model.template to another, such as no", err, t.Name), "model.template")
	}
	return err
}

// Reads reports whether the tokenizer's text of a conversation may depend on a name.
func (Template) Reads(t *Tokenizer, name string) bool {
	reads := strings.Contains(t.chat.plain.source, name)
	for _, text := range t.chat.named {
		reads = reads || strings.Contains(text.source, name)
	}
	return reads
}

// Around returns a conversation with the template's system message and arguments, unless it has its own.
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
