package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"attnbudget/engine/gguf"
)

// Metadata keys of a vocabulary.
const (
	keyModel       = "tokenizer.ggml.model"
	keyPre         = "tokenizer.ggml.pre"
	keyTokens      = "tokenizer.ggml.tokens"
	keyScores      = "tokenizer.ggml.scores"
	keyTypes       = "tokenizer.ggml.token_type"
	keyMerges      = "tokenizer.ggml.merges"
	keyBOS         = "tokenizer.ggml.bos_token_id"
	keyEOS         = "tokenizer.ggml.eos_token_id"
	keySuppress    = "tokenizer.ggml.suppress_tokens"
	keyAddBOS      = "tokenizer.ggml.add_bos_token"
	keyAddEOS      = "tokenizer.ggml.add_eos_token"
	keySpacePrefix = "tokenizer.ggml.add_space_prefix"
)

// escapedSpace stands for a space in the token texts of SPM and Gemma 4 vocabularies.
const escapedSpace = "▁"

// attributes of a token; several may hold.
type attributes uint8

const (
	normal attributes = 1 << iota
	unknown
	control
	userDefined
	byteToken
)

// tokenTypes maps tokenizer.ggml.token_type to attributes; unused (5) and undefined types have none.
var tokenTypes = map[int64]attributes{1: normal, 2: unknown, 3: control, 4: userDefined, 6: byteToken}

type token struct {
	text  string // as in the file
	score float32
	attr  attributes
}

type vocab struct {
	tokens []token
	byText map[string]int32
}

func readVocab(f *gguf.File) (*vocab, error) {
	texts, err := f.Strings(keyTokens)
	if err != nil {
		return nil, err
	}
	scores, err := optionalScores(f)
	if err != nil {
		return nil, err
	}
	var types []int64
	if f.Has(keyTypes) {
		if types, err = f.Ints(keyTypes); err != nil {
			return nil, err
		}
	}
	if scores != nil && len(scores) < len(texts) {
		return nil, fmt.Errorf("%s: %s has %d entries for %d tokens", f.Path, keyScores, len(scores), len(texts))
	}
	if types != nil && len(types) < len(texts) {
		return nil, fmt.Errorf("%s: %s has %d entries for %d tokens", f.Path, keyTypes, len(types), len(texts))
	}
	v := &vocab{tokens: make([]token, len(texts)), byText: make(map[string]int32, len(texts))}
	for i, text := range texts {
		if text == "" {
			text = fmt.Sprintf("[EMPTY_%d]", i) // upstream's name for it
		}
		if first, ok := v.byText[text]; ok {
			return nil, fmt.Errorf("%s: %s: tokens %d and %d are both %q; a vocabulary needs distinct tokens", f.Path, keyTokens, first, i, text)
		}
		v.byText[text] = int32(i)
		t := token{text: text, attr: normal}
		if scores != nil {
			t.score = scores[i]
		}
		if types != nil {
			t.attr = tokenTypes[types[i]]
		}
		v.tokens[i] = t
	}
	return v, nil
}

// optionalScores reads the scores, which some converters wrote as integers; nil if there are none.
func optionalScores(f *gguf.File) ([]float32, error) {
	if !f.Has(keyScores) {
		return nil, nil
	}
	scores, err := f.Floats(keyScores)
	if err == nil {
		return scores, nil
	}
	ints, errInts := f.Ints(keyScores)
	if errInts != nil {
		return nil, err
	}
	scores = make([]float32, len(ints))
	for i, n := range ints {
		scores[i] = float32(n)
	}
	return scores, nil
}

// specialID reads a token id; an absent key gives def, or none where def lies outside the vocabulary.
func (v *vocab) specialID(f *gguf.File, key string, def int32) (int32, error) {
	if !f.Has(key) {
		if int(def) >= len(v.tokens) {
			return none, nil
		}
		return def, nil
	}
	id, err := f.Uint(key)
	if err != nil {
		return none, err
	}
	if id >= uint64(len(v.tokens)) {
		return none, fmt.Errorf("%s: %s is %d but the vocabulary has tokens 0 to %d", f.Path, key, id, len(v.tokens)-1)
	}
	return int32(id), nil
}

// ids reads a list of token ids; an absent key gives none.
func (v *vocab) ids(f *gguf.File, key string) ([]int32, error) {
	if !f.Has(key) {
		return nil, nil
	}
	list, err := f.Uints(key)
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(list))
	for i, id := range list {
		if id >= uint64(len(v.tokens)) {
			return nil, fmt.Errorf("%s: %s has %d but the vocabulary has tokens 0 to %d", f.Path, key, id, len(v.tokens)-1)
		}
		out[i] = int32(id)
	}
	return out, nil
}

// fillIns lists, per fill-in-the-middle role, its metadata keys and the token texts that stand for it where no key does.
// Upstream treats tokens found by text as control tokens, whatever the file calls them.
var fillIns = []struct {
	keys  []string
	texts []string
	ends  bool // generating it ends the generation
}{
	{[]string{"fim_pre", "prefix"}, []string{"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"}, false},
	{[]string{"fim_suf", "suffix"}, []string{"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"}, false},
	{[]string{"fim_mid", "middle"}, []string{"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"}, false},
	{[]string{"fim_pad"}, []string{"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}, true},
	{[]string{"fim_rep"}, []string{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}, true},
	{[]string{"fim_sep"}, []string{"<|file_sep|>"}, true},
}

// endTexts are the texts of tokens that end a turn or a text; upstream treats them as control tokens.
var endTexts = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
	"<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>",
	"<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["}

// alwaysShown are gpt-oss tokens that upstream makes user-defined.
var alwaysShown = []string{"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}

// resolveSpecials finds the tokens that end a generation and corrects attributes as upstream does when it loads a
// vocabulary, since attributes decide what is recognised in text.
func (v *vocab) resolveSpecials(f *gguf.File, eos int32) (map[int32]bool, error) {
	eog := make(map[int32]bool)
	for _, role := range fillIns {
		id, err := v.fillInToken(f, role.keys, role.texts)
		if err != nil {
			return nil, err
		}
		if id != none && role.ends {
			eog[id] = true
		}
	}
	for _, text := range endTexts {
		if id, ok := v.byText[text]; ok {
			v.tokens[id].attr |= control
			eog[id] = true
		}
	}
	for _, text := range alwaysShown {
		if id, ok := v.byText[text]; ok {
			v.tokens[id].attr = userDefined
		}
	}
	for _, key := range []string{"eot", "eom"} {
		id, err := v.specialID(f, "tokenizer.ggml."+key+"_token_id", none)
		if err != nil {
			return nil, err
		}
		if id != none {
			eog[id] = true
		}
	}
	if eos != none {
		eog[eos] = true
	}
	v.dropFalseEnds(eog)
	return eog, nil
}

// fillInToken finds the token of a role: by key, else by text (the lowest id, where several texts are present).
func (v *vocab) fillInToken(f *gguf.File, keys, texts []string) (int32, error) {
	found := none
	for _, key := range keys {
		id, err := v.specialID(f, "tokenizer.ggml."+key+"_token_id", none)
		if err != nil {
			return none, err
		}
		if id != none {
			found = id
		}
	}
	if found != none {
		return found, nil
	}
	for _, text := range texts {
		if id, ok := v.byText[text]; ok && (found == none || id < found) {
			found = id
		}
	}
	if found != none {
		v.tokens[found].attr |= control
	}
	return found, nil
}

// dropFalseEnds undoes two matches by text that are wrong for known vocabularies: <|end|> in those of gpt-oss and
// solar-open, and </s> in those of Gemma 4, where it is an ordinary token.
func (v *vocab) dropFalseEnds(eog map[int32]bool) {
	ends := func(text string) bool { id, ok := v.byText[text]; return ok && eog[id] }
	call := ends("<|call|>") || ends("<|calls|>")
	if call && ends("<|end|>") && (ends("<|return|>") || ends("<|flush|>")) {
		id := v.byText["<|end|>"]
		delete(eog, id)
		v.tokens[id].attr = userDefined
	}
	if ends("<|tool_response>") && ends("</s>") {
		id := v.byText["</s>"]
		delete(eog, id)
		v.tokens[id].attr = normal
	}
}

// pieces is the bytes every token stands for in text, all in one allocation.
func (v *vocab) pieces(escape bool) ([][]byte, error) {
	var all []byte
	ends := make([]int, len(v.tokens))
	for i, t := range v.tokens {
		switch {
		case t.attr&(unknown|control|userDefined) != 0:
			all = append(all, t.text...)
		case t.attr&normal != 0 && escape:
			all = append(all, strings.ReplaceAll(t.text, escapedSpace, " ")...)
		case t.attr&normal != 0:
			all = appendDecoded(all, t.text)
		case t.attr&byteToken != 0:
			b, err := parseByteToken(t.text)
			if err != nil {
				return nil, fmt.Errorf("%s: token %d: %w", keyTokens, i, err)
			}
			all = append(all, b)
		}
		ends[i] = len(all)
	}
	pieces := make([][]byte, len(ends))
	start := 0
	for i, end := range ends {
		pieces[i] = slices.Clip(all[start:end])
		start = end
	}
	return pieces, nil
}

// byteTokenText is the text of the token for one byte in vocabularies with byte fallback.
func byteTokenText(b byte) string { return fmt.Sprintf("<0x%02X>", b) }

func parseByteToken(text string) (byte, error) {
	if len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>' {
		if n, err := strconv.ParseUint(text[3:5], 16, 8); err == nil {
			return byte(n), nil
		}
	}
	if len(text) == 1 {
		return text[0], nil
	}
	return 0, errors.New(strconv.Quote(text) + " is typed as a byte token but is not written <0xNN>")
}
