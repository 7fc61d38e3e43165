// Package http is the reward of a server that grades: the user's own server, which takes
// the objects of package external, or one that was made for OpenRLHF or NeMo Gym.
package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"onering/internal/process"
	"onering/internal/remote"
	"onering/internal/settings"
	"onering/reward"
	"onering/reward/external"
)

func init() {
	reward.Register("http", func() reward.Reward {
		return &Server{Dialect: "onering", Concurrency: 16, Settings: external.Default()}
	})
}

// A Server is the reward that grades by requests to a server.
type Server struct {
	URL         string `toml:"url" help:"address of the grader, such as http://localhost:5000/get_reward; several, with commas between them, share the work; required"`
	Dialect     string `toml:"dialect" choice:"onering openrlhf nemo_gym" note:"onering posts the object that a command reads; openrlhf posts query, prompts and labels; nemo_gym posts each response to /verify under the address" help:"what the server understands"`
	Concurrency int    `toml:"concurrency" range:"[1,4096]" help:"most requests at a time"`
	TokenEnv    string `toml:"token_env" help:"name of the environment variable with the bearer token for the server; the token itself is never written anywhere"`
	SeedSession bool   `toml:"seed_session" help:"with nemo_gym, open a session by /seed_session for each response"`
	external.Settings

	once   sync.Once
	client *nethttp.Client
	slots  chan struct{} // limits the requests under way
	count  atomic.Int64  // number of groups so far
}

// A dialect grades a group by requests to the server at an address. It sets the scores in have, of which
// an earlier attempt may have left some.
type dialect func(ctx context.Context, s *Server, address string, group []reward.Sample, have []*reward.Score) error

var dialects = map[string]dialect{"onering": postGroup, "openrlhf": postQueries, "nemo_gym": verifyEach}

// About is the reward's line in lists.
func (*Server) About() string {
	return "what a server answers, also one for OpenRLHF or NeMo Gym"
}

// Validate refuses impossible settings.
func (s *Server) Validate() error {
	var errs settings.Errors
	for _, address := range s.addresses() {
		errs = append(errs, remote.CheckAddress("url", address, "http://localhost:5000/get_reward"))
	}
	errs = append(errs, remote.CheckTokenEnv(s.TokenEnv))
	errs.Want("seed_session", true, !s.SeedSession || s.Dialect == "nemo_gym", `has a meaning with dialect = "nemo_gym" only`)
	return errors.Join(errs...)
}

func (s *Server) addresses() []string {
	list := strings.Split(s.URL, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// Ready returns an error if no connection to any server is possible, or if the token is
// not set. A server that answers anything counts as ready.
func (s *Server) Ready(ctx context.Context) error {
	if _, err := remote.Token("reward", s.TokenEnv); err != nil {
		return err
	}
	s.once.Do(s.prepare)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var failed []error
	for _, address := range s.addresses() {
		err := remote.Reach(ctx, s.client, "reward.url", address)
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Groups implements the method that reward.Groups calls.
func (s *Server) Groups() int { return s.Concurrency }

// Varies implements the method that reward.Varies calls: the server may give varying scores.
func (*Server) Varies() bool { return true }

// Score implements reward.Reward. A response that was graded is not sent again when
// another one of its group failed.
func (s *Server) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	s.once.Do(s.prepare)
	addresses := s.addresses()
	first := int(s.count.Add(1))
	have := make([]*reward.Score, len(group))
	return s.Grade(ctx, "http", group, func(ctx context.Context, try int) ([]reward.Score, error) {
		address := addresses[(first+try)%len(addresses)] // another server may work if one does not
		if err := dialects[s.Dialect](ctx, s, address, group, have); err != nil {
			return nil, err
		}
		scores := make([]reward.Score, len(have))
		for i, score := range have {
			scores[i] = *score
		}
		return scores, nil
	})
}

// prepare makes what requests share. It follows redirects only on the same server: the group
// and the token are for no other.
func (s *Server) prepare() {
	s.slots = make(chan struct{}, s.Concurrency)
	s.client, _ = remote.Client("reward", s.TokenEnv, process.MaxAnswer+1) // post returns the error of a missing token, too
}

// Close closes the connections that are idle.
func (s *Server) Close() error {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	return nil
}

// post posts a JSON object and returns the answer's body.
func (s *Server) post(ctx context.Context, client *nethttp.Client, address string, body []byte) ([]byte, error) {
	token, err := remote.Token("reward", s.TokenEnv)
	if err != nil {
		return nil, external.Permanent(err)
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	limited, cancel := context.WithTimeout(ctx, s.Wait())
	defer cancel()
	request, err := nethttp.NewRequestWithContext(limited, nethttp.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, external.Permanent(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	answer, err := remote.Exchange(client, request, token)
	if err == nil {
		return answer, nil
	}
	if refused, ok := errors.AsType[*remote.Refusal](err); ok && refused.Final { // it would refuse another attempt, too
		err = external.Permanent(refused.Err)
	} else if ok {
		err = external.After(refused.Err, refused.After)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v s", s.Timeout)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the server closed the connection before its answer was complete: look at what it printed")
	}
	return nil, fmt.Errorf("POST %s: %w", address, err)
}
