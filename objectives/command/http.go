package command

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"onering/internal/process"
	"onering/internal/remote"
	"onering/objectives"
)

func init() {
	objectives.Register("http", func() objectives.Objective {
		o := &Server{asked: newAsked("http")}
		o.askOnce = o.post
		return o
	})
}

// A Server is the objective that asks a server of the user.
type Server struct {
	// URL is the address that the batch is posted to, such as http://localhost:5000/loss. Required.
	URL string `toml:"url"`
	// TokenEnv names the environment variable with the bearer token; the token itself is written nowhere. Default "".
	TokenEnv string `toml:"token_env"`
	asked
}

// Validate asks for an address.
func (o *Server) Validate() error {
	return errors.Join(o.Shared.Validate(), remote.CheckAddress("url", o.URL, "http://localhost:5000/loss"), remote.CheckTokenEnv(o.TokenEnv))
}

// Ready says whether no server is there, or the token is missing.
func (o *Server) Ready(ctx context.Context) error {
	client, err := remote.Client("objective", o.TokenEnv, process.MaxAnswer+1)
	if err != nil {
		return err
	}
	return remote.Reach(ctx, client, "objective.url", o.URL)
}

// post sends a question, an object that lacks its opening brace, with an id before its fields, and returns the answer. It
// notes whom it asked for messages. After a refusal that is not final it waits as the server asks, since the caller tries
// again.
func (o *Server) post(question []byte) ([]byte, error) {
	o.whom = "POST " + o.URL
	token, err := remote.Token("objective", o.TokenEnv)
	if err != nil {
		return nil, &remote.Refusal{Err: err, Final: true}
	}
	client, err := remote.Client("objective", o.TokenEnv, process.MaxAnswer+1) // one more, so that too long an answer is noticed
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(o.Timeout*float64(time.Second)))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL, bytes.NewReader(append([]byte(`{"id":1,`), question...)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := remote.Exchange(client, request, token)
	if refused, ok := errors.AsType[*remote.Refusal](err); ok && !refused.Final {
		time.Sleep(min(refused.After, time.Minute))
	}
	return answer, err
}
