package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/cookiejar"
	"slices"
	"strings"
	"sync"

	"onering/data"
	"onering/internal/process"
	"onering/reward"
	"onering/reward/external"
)

// postGroup speaks the dialect onering: the object of a group, and the answer to it.
func postGroup(ctx context.Context, s *Server, address string, group []reward.Sample, have []*reward.Score) error {
	id := int(s.count.Add(1))
	text, err := s.post(ctx, s.client, address, external.Encode(id, group))
	if err != nil {
		return err
	}
	scores, err := external.Decode(text, id, len(group))
	return storeScores(have, scores, address, err)
}

// storeScores stores the scores of a group, or names the server whose answer could not be used.
func storeScores(have []*reward.Score, scores []reward.Score, address string, err error) error {
	if err != nil {
		return fmt.Errorf("POST %s: %w", address, err)
	}
	for i := range scores {
		have[i] = &scores[i]
	}
	return nil
}

// postQueries speaks the dialect of OpenRLHF's remote reward models, and sets have to the scores of the group. A label
// is the first answer of the problem. The scores and the extra logs of the answer become log figures.
func postQueries(ctx context.Context, s *Server, address string, group []reward.Sample, have []*reward.Score) error {
	var queries, prompts, labels []string
	for _, x := range group {
		label := ""
		if len(x.Problem.Answers) > 0 {
			label = x.Problem.Answers[0]
		}
		queries, prompts, labels = append(queries, x.Prompt+x.Response), append(prompts, x.Prompt), append(labels, label)
	}
	text, err := s.post(ctx, s.client, address, external.Marshal(data.Object{
		{Name: "query", Value: external.Texts(queries)}, {Name: "prompts", Value: external.Texts(prompts)}, {Name: "labels", Value: external.Texts(labels)},
	}))
	if err != nil {
		return err
	}
	var answer struct {
		Rewards   []*float64                 `json:"rewards"`
		Scores    json.RawMessage            `json:"scores"`
		ExtraLogs map[string]json.RawMessage `json:"extra_logs"`
	}
	if err := external.Read(text, &answer); err != nil {
		return storeScores(nil, nil, address, err) // adds the address to the error
	}
	a := external.Answer{Rewards: answer.Rewards, Log: answer.ExtraLogs}
	if len(answer.Scores) > 0 && string(answer.Scores) != "null" {
		if a.Log == nil {
			a.Log = map[string]json.RawMessage{}
		}
		a.Log["scores"] = answer.Scores
	}
	scores, err := a.Scores(text, len(group))
	return storeScores(have, scores, address, err)
}

// verifyEach speaks the dialect of NeMo Gym's resources servers: a request for each
// response that has no score yet, at the same time.
func verifyEach(ctx context.Context, s *Server, address string, group []reward.Sample, have []*reward.Score) error {
	errs := make([]error, len(group))
	var all sync.WaitGroup
	for i := range group {
		if have[i] == nil {
			all.Go(func() { have[i], errs[i] = s.verify(ctx, strings.TrimSuffix(address, "/"), group[i]) })
		}
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("response %d: %w", i, err)
		}
	}
	return nil
}

// verify has one response verified, in its own session if the server has sessions.
func (s *Server) verify(ctx context.Context, address string, x reward.Sample) (*reward.Score, error) {
	client := *s.client // a copy, which may have cookies of its own
	if s.SeedSession {
		jar, err := cookiejar.New(nil)
		if err != nil {
			return nil, err
		}
		client.Jar = jar
		if _, err := s.post(ctx, &client, address+"/seed_session", external.Marshal(gymRow(x))); err != nil {
			return nil, err
		}
	}
	text, err := s.post(ctx, &client, address+"/verify", external.Marshal(append(gymRow(x), data.Member{Name: "response", Value: gymResponse(x)})))
	if err != nil {
		return nil, err
	}
	score, err := gymScore(text)
	if err != nil {
		return nil, fmt.Errorf("POST %s/verify: %w", address, err)
	}
	return score, nil
}

// gymScore reads the answer to /verify. A sample that the server masks, because its
// reward is not a measurement, is skipped.
func gymScore(text []byte) (*reward.Score, error) {
	var a struct {
		Reward     *float64           `json:"reward"`
		Components map[string]float64 `json:"reward_components"`
		Mask       bool               `json:"mask_sample"`
		Reason     string             `json:"failure_reason"`
	}
	if err := external.Read(text, &a); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(a.Components)) {
		if err := external.CheckName(name); err != nil {
			return nil, external.Permanent(fmt.Errorf(`"reward_components": %w`, err))
		}
	}
	switch {
	case a.Mask:
		return &reward.Score{Skip: true, Status: reward.Error, Reason: a.Reason}, nil
	case a.Reward == nil:
		return nil, external.Permanent(fmt.Errorf("the answer %s: %w", process.Excerpt(text), errors.New(`it has no number under "reward"`)))
	}
	return &reward.Score{Value: *a.Reward, Reason: a.Reason, Components: a.Components}, nil
}

// gymRow returns the problem for a request: the columns of the row, and what a server
// needs of them if the row was not made for it.
func gymRow(x reward.Sample) data.Object {
	row := data.Object{}
	for _, column := range x.Problem.Fields {
		if column.Name != "response" { // the name is the model's
			row = append(row, column)
		}
	}
	if _, ok := row.Get("responses_create_params"); !ok {
		input := data.Object{{Name: "role", Value: "user"}, {Name: "content", Value: x.Problem.Text}}
		row = append(row, data.Member{Name: "responses_create_params", Value: data.Object{{Name: "input", Value: []any{input}}}})
	}
	if _, ok := row.Get("expected_answer"); !ok && len(x.Problem.Answers) > 0 {
		row = append(row, data.Member{Name: "expected_answer", Value: x.Problem.Answers[0]})
	}
	return row
}

// gymResponse returns a response in the form of OpenAI's Responses API, with the tokens
// that NeMo Gym adds.
func gymResponse(x reward.Sample) data.Object {
	status, details := "completed", any(nil)
	if x.Truncated {
		status, details = "incomplete", data.Object{{Name: "reason", Value: "max_output_tokens"}}
	}
	message := data.Object{
		{Name: "id", Value: "msg_0"}, {Name: "type", Value: "message"}, {Name: "role", Value: "assistant"}, {Name: "status", Value: status},
		{Name: "content", Value: []any{data.Object{{Name: "type", Value: "output_text"}, {Name: "text", Value: x.Response}, {Name: "annotations", Value: []any{}}}}},
	}
	if x.LogProb != nil || len(x.IDs) == 0 { // all three fields or none of them; no tokens have no log-probs to lack
		logp := make([]any, len(x.LogProb))
		for i, v := range x.LogProb {
			logp[i] = float64(v)
		}
		message = append(message, data.Object{
			{Name: "prompt_token_ids", Value: external.IDs(x.PromptIDs)}, {Name: "generation_token_ids", Value: external.IDs(x.IDs)}, {Name: "generation_log_probs", Value: logp},
		}...)
	}
	return data.Object{
		{Name: "id", Value: "resp_0"}, {Name: "object", Value: "response"}, {Name: "created_at", Value: int64(0)}, {Name: "model", Value: "onering"},
		{Name: "status", Value: status}, {Name: "incomplete_details", Value: details}, {Name: "error", Value: nil}, {Name: "output", Value: []any{message}},
		{Name: "parallel_tool_calls", Value: false}, {Name: "tool_choice", Value: "auto"}, {Name: "tools", Value: []any{}},
	}
}
