package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/tokenize"
)

// A demonstration is a conversation, a prompt with a response, or a text; the file's
// first row and the names of its columns decide which.
func TestDemonstrations(t *testing.T) {
	const chat = `[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]`
	for _, c := range []struct {
		name, text string
		columns    DemonstrationColumns
		want       string // the first demonstration; an error has "error: " in front
	}{
		{"messages.jsonl", `{"messages": ` + chat + `, "prompt": "q"}`, DemonstrationColumns{}, `chat of 2 from 0`},
		{"tools.jsonl", `{"messages": ` + chat + `, "tools": [{"name": "f"}]}`, DemonstrationColumns{}, `chat of 2 from 0`},
		{"odd.jsonl", `{"dialog": ` + chat + `}`, DemonstrationColumns{Messages: "dialog"}, `chat of 2 from 0`},
		{"table.csv", "messages\n\"" + strings.ReplaceAll(chat, `"`, `""`) + "\"\n", DemonstrationColumns{}, `chat of 2 from 0`},
		{"pair.jsonl", `{"prompt": "q", "completion": "a"}`, DemonstrationColumns{}, `"q" "a"`},
		{"chats.jsonl", `{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}`, DemonstrationColumns{}, `chat of 3 from 2`},
		{"single.jsonl", `{"prompt": [{"role": "user", "content": "q"}], "completion": "a"}`, DemonstrationColumns{}, `"q" "a" chat of 2 from 1`},
		{"graded.jsonl", `{"messages": [{"role": "user", "content": "q"}], "answer": "a"}`, DemonstrationColumns{}, `"q" "a" chat of 2 from 1`},
		{"turns.jsonl", `{"instruction": "q", "input": "i", "output": "a", "system": "s", "history": [["q0", "a0"], ["q1", "a1"]]}`, DemonstrationColumns{}, `"" "a" chat of 7 from 6`},
		{"system.jsonl", `{"instruction": "q", "input": "", "output": "a", "system": "s", "history": []}`, DemonstrationColumns{}, `"" "a" chat of 3 from 2`},
		{"empty.jsonl", `{"instruction": "q", "output": "a", "system": "", "history": null}`, DemonstrationColumns{}, `"q" "a"`},
		{"turns.csv", "instruction,output,history\nq,a,\"[[\"\"q0\"\", \"\"a0\"\"]]\"\n", DemonstrationColumns{}, `"" "a" chat of 4 from 3`},
		{"flat.jsonl", `{"instruction": "q", "output": "a", "history": ["q0", "a0"]}`, DemonstrationColumns{}, `error: data: FILE: line 1: the column history is not a list of pairs`},
		{"half.jsonl", `{"instruction": "q", "output": "a", "history": [["q0", null]]}`, DemonstrationColumns{}, `error: data: FILE: line 1: the column history is not a list of pairs`},
		{"said.csv", "instruction,output,history\nq,a,earlier\n", DemonstrationColumns{}, `"q" "a"`},
		{"level.jsonl", `{"instruction": "q", "output": "a", "system": 3}`, DemonstrationColumns{}, `"q" "a"`},
		{"text.jsonl", `{"text": "t", "id": 1}`, DemonstrationColumns{}, `whole "" "t"`},
		{"named.jsonl", `{"prompt": "q", "completion": "a", "body": "t"}`, DemonstrationColumns{Text: "body"}, `whole "" "t"`},
		{"asked.jsonl", `{"messages": [{"role": "user", "content": "q"}]}`, DemonstrationColumns{}, `error: data: FILE: line 1: "messages" has no message {"role": "assistant", "content": ...}, and no column looks like the response`},
		{"share.jsonl", `{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}`, DemonstrationColumns{}, `chat of 2 from 0`},
		{"none.jsonl", `{"prompt": "q"}`, DemonstrationColumns{}, `error: no column looks like the response`},
		{"both.jsonl", `{"prompt": "q"}`, DemonstrationColumns{Text: "a", Prompt: "b"}, `error: columns for text and prompt and response are named`},
		{"role.jsonl", `{"messages": [{"content": "q"}, {"role": "assistant", "content": "a"}]}`, DemonstrationColumns{}, `error: data: FILE: line 1: message 1 has no role`},
		{"content.jsonl", `{"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]}`, DemonstrationColumns{}, `error: data: FILE: line 1: message 1 has no text`},
		{"later.jsonl", `{"messages": ` + chat + "}\n" + `{"messages": "x"}`, DemonstrationColumns{}, `error: data: FILE: line 2: the messages are not a list`},
		{"episode.jsonl", `{"prompt": "q", "response": "abc", "turns": [{"author": "policy"}, {"author": "environment"}]}`, DemonstrationColumns{}, `error: data: FILE: line 1: column "turns": an environment has written parts of the response`},
		{"turns.jsonl", `{"prompt": "q", "response": "a", "turns": ["x"]}`, DemonstrationColumns{}, `"q" "a"`},
		{"empty.jsonl", `{"prompt": "q", "response": ""}`, DemonstrationColumns{}, `error: data: FILE: line 1: no response (column "response")`},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		got := ""
		list, _, err := LoadDemonstrations(path, c.columns, Options{})
		if err != nil {
			got = "error: " + strings.ReplaceAll(err.Error(), path, "FILE")
		} else {
			d := list[0]
			var parts []string
			if d.Whole {
				parts = append(parts, "whole")
			}
			if d.Response != "" {
				parts = append(parts, fmt.Sprintf("%q %q", d.Prompt, d.Response))
			}
			if d.Chat != nil {
				parts = append(parts, fmt.Sprintf("chat of %d from %d", len(d.Chat.Messages), d.From))
			}
			got = strings.Join(parts, " ")
			if unit := map[bool]string{true: "line 2", false: "line 1"}[strings.HasSuffix(c.name, ".csv")]; d.Place != path+": "+unit {
				t.Errorf("%s: place %q", c.name, d.Place)
			}
		}
		if want, isError := strings.CutPrefix(c.want, "error: "); got != c.want && !(isError && strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A prompt with a character that the vocabulary lacks is refused, because the model would read a
// different prompt.
func TestPromptUnknownCharacter(t *testing.T) {
	p, err := NewPrompter(chatFolder(t), tokenizeTemplate(t, "no"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Prompt(Problem{ID: "f.jsonl:3", Text: "naïve"}); err == nil || err.Error() != `data: problem "f.jsonl:3": tokenize: 'ï' in "ïve" is not in the vocabulary` {
		t.Errorf("error %v", err)
	}
	own, err := NewPrompter(chatFolder(t), tokenizeTemplate(t, "ä{problem}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := own.Prompt(Problem{ID: "f.jsonl:3", Text: "naive"}); err == nil || !strings.HasSuffix(err.Error(), `is not in the vocabulary: the template "ä{problem}" writes it; set model.template to another, such as no`) {
		t.Errorf("error %v", err)
	}
	if _, _, err := p.Prompt(Problem{Text: "plain", Plain: true}); err != nil {
		t.Error(err)
	}
}

func tokenizeTemplate(t *testing.T, name string) tokenize.Template {
	t.Helper()
	template, err := tokenize.ParseTemplate(name)
	if err != nil {
		t.Fatal(err)
	}
	return template
}
