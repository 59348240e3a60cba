-- SPDX-License-Identifier: Apache-2.0
-- Wireshark dissector for FMTPv3 over UDP and TCP: layouts 2017 and 2021 with their key exchange and
-- MACs, and extension 1 (docs/reference/contracts.md). How to use it: docs/guide/capture.md.

-- Wireshark has an "fmtp" of its own, the Flight Message Transfer Protocol.
local fmtp = Proto("fmtpv3", "File Multicast Transport Protocol (FMTPv3)")

local HEADER = 12
local BOP, EOP, MEM_DATA, RETX_REQ, RETX_REJ, RETX_END = 0x0001, 0x0002, 0x0004, 0x0008, 0x0010, 0x0020
local RETX_DATA, BOP_REQ, RETX_BOP, EOP_REQ, RETX_EOP = 0x0040, 0x0080, 0x0100, 0x0200, 0x0400
local PARITY, REPAIR, REPAIR_REQ, NOT_YET = 0x0800, 0x1000, 0x2000, 0x4000

local NAMES = {
  [BOP] = "BOP", [EOP] = "EOP", [MEM_DATA] = "MEM_DATA", [RETX_REQ] = "RETX_REQ",
  [RETX_REJ] = "RETX_REJ", [RETX_END] = "RETX_END", [RETX_DATA] = "RETX_DATA",
  [BOP_REQ] = "BOP_REQ", [RETX_BOP] = "RETX_BOP", [EOP_REQ] = "EOP_REQ",
  [RETX_EOP] = "RETX_EOP", [PARITY] = "PARITY", [REPAIR] = "REPAIR", [REPAIR_REQ] = "REPAIR_REQ",
  [NOT_YET] = "NOT_YET",
}
-- Messages sent over UDP, and those with a body on TCP (in RETX_REQ payloadlen is what is requested).
local ON_UDP = { [BOP] = true, [EOP] = true, [MEM_DATA] = true, [PARITY] = true, [REPAIR] = true }
local BODY_ON_TCP = { [RETX_DATA] = true, [RETX_BOP] = true, [REPAIR_REQ] = true }
local MAC_NAMES = { [28] = "AES-256-GMAC", [32] = "HMAC-SHA256", [64] = "Ed25519" }
local PEM = "-----BEGIN RSA PUBLIC KEY"
local MAX_KEY = 65504

local f = fmtp.fields
f.prodindex = ProtoField.uint32("fmtpv3.prodindex", "Product index")
f.seqnum = ProtoField.uint32("fmtpv3.seqnum", "Sequence number (byte offset)")
f.payloadlen = ProtoField.uint16("fmtpv3.payloadlen", "Payload length")
f.flags = ProtoField.uint16("fmtpv3.flags", "Message type", base.HEX, NAMES)
f.wanted = ProtoField.uint16("fmtpv3.wanted", "Bytes requested")
f.layout = ProtoField.uint16("fmtpv3.bop.layout", "Layout")
f.start = ProtoField.absolute_time("fmtpv3.bop.start", "Start of the multicast", base.UTC)
f.size = ProtoField.uint32("fmtpv3.bop.size", "Product size")
f.metasize = ProtoField.uint16("fmtpv3.bop.metasize", "Metadata size")
f.meta = ProtoField.bytes("fmtpv3.bop.meta", "Metadata")
f.data = ProtoField.bytes("fmtpv3.data", "Data")
f.mac = ProtoField.bytes("fmtpv3.mac", "MAC")
f.mac_kind = ProtoField.string("fmtpv3.mac.kind", "Kind of MAC")
f.key_length = ProtoField.uint32("fmtpv3.key.length", "Length of the key")
f.key_pem = ProtoField.string("fmtpv3.key.pem", "Receiver's public key")
f.key_extensions = ProtoField.string("fmtpv3.key.extensions", "Extensions offered")
f.key_answer = ProtoField.bytes("fmtpv3.key.answer", "Sender's answer (encrypted)")
f.parity_group = ProtoField.uint16("fmtpv3.parity.group", "FEC group")
f.parity_number = ProtoField.uint8("fmtpv3.parity.number", "Parity symbol")
f.parity_end = ProtoField.uint8("fmtpv3.parity.end", "Symbols of the group sent when this burst is over")
f.repair_group = ProtoField.uint32("fmtpv3.repair_req.group", "FEC group")
f.repair_high = ProtoField.uint8("fmtpv3.repair_req.high", "Largest end known")
f.repair_round = ProtoField.uint8("fmtpv3.repair_req.round", "Round")
f.repair_need = ProtoField.uint16("fmtpv3.repair_req.need", "Symbols needed")
f.repair_bitmap = ProtoField.bytes("fmtpv3.repair_req.bitmap", "Missing blocks (least significant bit first)")
f.repair_missing = ProtoField.uint16("fmtpv3.repair_req.missing", "Number of missing blocks")
f.not_multicast = ProtoField.uint32("fmtpv3.retx_end.not_multicast", "Blocks that did not come by MEM_DATA")
f.gap = ProtoField.uint32("fmtpv3.gap", "Bytes missing before")
f.gap_blocks = ProtoField.uint32("fmtpv3.gap.blocks", "Blocks missing before")
f.gap_products = ProtoField.uint32("fmtpv3.gap.products", "Products missing before")

local e_gap = ProtoExpert.new("fmtpv3.gap.expert", "Blocks before this one were not seen",
  expert.group.SEQUENCE, expert.severity.NOTE)
local e_products = ProtoExpert.new("fmtpv3.gap.products.expert", "Products before this one were not seen",
  expert.group.SEQUENCE, expert.severity.NOTE)
local e_old = ProtoExpert.new("fmtpv3.retrograde", "This block was received before, or is out of order",
  expert.group.SEQUENCE, expert.severity.NOTE)
local e_malformed = ProtoExpert.new("fmtpv3.malformed", "Not a valid FMTP message",
  expert.group.MALFORMED, expert.severity.ERROR)
fmtp.experts = { e_gap, e_products, e_old, e_malformed }

fmtp.prefs.udp_ports = Pref.range("UDP ports", "", "Datagrams from or to these ports are FMTP", 65535)
fmtp.prefs.tcp_ports = Pref.range("TCP ports", "", "Connections with these ports are FMTP", 65535)
fmtp.prefs.heuristic = Pref.bool("Find FMTP by its form", true,
  "Whatever the port, take datagrams and connections that look like FMTP as such")
fmtp.prefs.layout = Pref.enum("Layout of BOP", 0, "Which fields BOP and RETX_BOP have",
  { { 1, "From the message", 0 }, { 2, "2017", 2017 }, { 3, "2021", 2021 } }, false)

-- State from earlier packets, by sender and group. The notes on a packet are kept by its number,
-- because packets are dissected more than once, later in any order.
local feeds, notes, connections = {}, {}, {}
function fmtp.init()
  feeds, notes, connections = {}, {}, {}
end

local function fits_2021(tvb, at, length)
  return length >= 18 and tvb(at + 16, 2):uint() <= length - 18
end

local function fits_2017(tvb, at, length)
  return length >= 6 and tvb(at + 4, 2):uint() == length - 6
end

-- 2017, 2021, or nil if neither fits. The high word of the seconds is 0 until 2106, where layout 2017
-- has the size of the product.
local function layout_of(tvb, at, length)
  if fmtp.prefs.layout == 2017 then return fits_2017(tvb, at, length) and 2017 or nil end
  if fmtp.prefs.layout == 2021 then return fits_2021(tvb, at, length) and 2021 or nil end
  local old, new = fits_2017(tvb, at, length), fits_2021(tvb, at, length)
  if new and (not old or tvb(at, 4):uint() == 0) and tvb(at + 16, 2):uint() == length - 18 then
    return 2021
  end
  return old and 2017 or (new and 2021 or nil)
end

local function bop_size(tvb, at, length)
  local layout = layout_of(tvb, at, length)
  if layout == nil then return nil end
  return tvb(at + (layout == 2021 and 12 or 0), 4):uint()
end

local function add_bop(tvb, at, length, tree)
  local layout = layout_of(tvb, at, length)
  if layout == nil then
    tree:add_proto_expert_info(e_malformed, "BOP: its metadata size does not fit its length")
    return ""
  end
  tree:add(f.layout, layout):set_generated()
  if layout == 2021 then
    local high, low = tvb(at, 4):uint(), tvb(at + 4, 4):uint()
    tree:add(f.start, tvb(at, 12), NSTime.new(high * 4294967296 + low, tvb(at + 8, 4):uint()))
    at, length = at + 12, length - 12
  end
  tree:add(f.size, tvb(at, 4))
  tree:add(f.metasize, tvb(at + 4, 2))
  local meta = tvb(at + 4, 2):uint()
  if meta > 0 then tree:add(f.meta, tvb(at + 6, meta)) end
  return string.format(" size=%d", tvb(at, 4):uint())
end

local function add_repair_req(tvb, at, length, group, tree)
  tree:add(f.repair_group, group):set_generated()
  if length < 5 then
    tree:add_proto_expert_info(e_malformed, "REPAIR_REQ: its body is too short")
    return ""
  end
  tree:add(f.repair_high, tvb(at, 1))
  tree:add(f.repair_round, tvb(at + 1, 1))
  tree:add(f.repair_need, tvb(at + 2, 2))
  tree:add(f.repair_bitmap, tvb(at + 4, length - 4))
  local missing = 0
  for i = at + 4, at + length - 1 do
    local byte = tvb(i, 1):uint()
    while byte > 0 do
      missing = missing + byte % 2
      byte = math.floor(byte / 2)
    end
  end
  tree:add(f.repair_missing, missing):set_generated()
  return string.format(" group=%d need=%d of %d", group, tvb(at + 2, 2):uint(), missing)
end

-- Updates the state of a feed with a multicast datagram; returns notes on losses.
local function look_for_gaps(pinfo, tvb, kind, index, seq, length)
  local key = tostring(pinfo.src) .. " " .. tostring(pinfo.dst) .. ":" .. pinfo.dst_port
  local feed = feeds[key]
  local note = {}
  if feed == nil then
    feed = { latest = nil, products = {} }
    feeds[key] = feed
  elseif feed.latest ~= nil then
    local ahead = (index - feed.latest) % 4294967296
    if ahead > 1 and ahead < 2147483648 then note.products = ahead - 1 end
  end
  if feed.latest == nil or (index - feed.latest) % 4294967296 < 2147483648 then feed.latest = index end
  local product = feed.products[index]
  if product == nil then
    product = { expected = 0, block = nil, size = nil }
    feed.products[index] = product
  end
  if kind == BOP then
    product.size = bop_size(tvb, HEADER, length)
  elseif kind == MEM_DATA then
    if seq > product.expected then
      note.gap = seq - product.expected
      note.blocks = math.ceil(note.gap / (product.block or length))
    elseif seq < product.expected then
      note.old = true
    end
    if seq + length > product.expected then product.expected = seq + length end
    product.block = math.max(product.block or 0, length)
  elseif kind == EOP then
    if product.size ~= nil and product.size > product.expected then
      note.gap = product.size - product.expected
      if product.block ~= nil then note.blocks = math.ceil(note.gap / product.block) end
    end
    feed.products[index] = nil
  end
  return note
end

local function add_note(note, tree)
  if note.products then
    tree:add(f.gap_products, note.products):set_generated()
    tree:add_proto_expert_info(e_products, string.format("%d products before this one were not seen", note.products))
  end
  if note.gap then
    tree:add(f.gap, note.gap):set_generated()
    if note.blocks then tree:add(f.gap_blocks, note.blocks):set_generated() end
    tree:add_proto_expert_info(e_gap, string.format("%d bytes before this were not seen", note.gap))
    return note.blocks and string.format(" [blocks missing before: %d]", note.blocks) or " [missing before]"
  end
  if note.old then
    tree:add_proto_expert_info(e_old)
    return " [received before, or out of order]"
  end
  return ""
end

local function add_text(pinfo, text)
  pinfo.cols.info:append(text)
end

-- One message. `on_tcp`: has no MAC, and a body only if its type has one.
local function dissect_message(tvb, pinfo, root, on_tcp)
  local tree = root:add(fmtp, tvb())
  if tvb:len() < HEADER then
    tree:add_proto_expert_info(e_malformed, "shorter than a header")
    return
  end
  local index, seq = tvb(0, 4):uint(), tvb(4, 4):uint()
  local length, kind = tvb(8, 2):uint(), tvb(10, 2):uint()
  local name = NAMES[kind]
  tree:add(f.prodindex, tvb(0, 4))
  tree:add(f.seqnum, tvb(4, 4))
  tree:add(f.payloadlen, tvb(8, 2))
  tree:add(f.flags, tvb(10, 2))
  if name == nil or (not on_tcp and not ON_UDP[kind]) or (on_tcp and ON_UDP[kind]) then
    tree:append_text(", malformed")
    tree:add_proto_expert_info(e_malformed, name == nil and "no such message type"
      or (name .. (on_tcp and " by TCP" or " by UDP")))
    add_text(pinfo, " malformed")
    return
  end
  local text = string.format(" %s %d", name, index)
  local body = (on_tcp and not BODY_ON_TCP[kind]) and 0 or length
  local rest = tvb:len() - HEADER - body
  if rest < 0 then
    tree:add_proto_expert_info(e_malformed, "its payload goes beyond the end")
    add_text(pinfo, text .. " malformed")
    return
  end
  if kind == BOP or kind == RETX_BOP then
    text = text .. add_bop(tvb, HEADER, length, tree)
  elseif kind == MEM_DATA or kind == RETX_DATA or kind == REPAIR then
    text = text .. string.format(" seq=%d len=%d", seq, length)
    if length > 0 then tree:add(f.data, tvb(HEADER, length)) end
  elseif kind == RETX_REQ then
    text = text .. string.format(" seq=%d wanted=%d", seq, length)
    tree:add(f.wanted, tvb(8, 2))
  elseif kind == PARITY then
    tree:add(f.parity_group, tvb(4, 2))
    tree:add(f.parity_number, tvb(6, 1))
    tree:add(f.parity_end, tvb(7, 1))
    text = text .. string.format(" group=%d number=%d", tvb(4, 2):uint(), tvb(6, 1):uint())
    if length > 0 then tree:add(f.data, tvb(HEADER, length)) end
  elseif kind == REPAIR_REQ then
    text = text .. add_repair_req(tvb, HEADER, length, seq, tree)
  elseif kind == RETX_END and seq > 0 then
    tree:add(f.not_multicast, tvb(4, 4))
  end
  if not on_tcp then
    if MAC_NAMES[rest] then
      tree:add(f.mac, tvb(HEADER + body, rest))
      tree:add(f.mac_kind, MAC_NAMES[rest]):set_generated()
    elseif rest > 0 then
      tree:add_proto_expert_info(e_malformed, string.format("%d bytes after the payload", rest))
    end
    if not pinfo.visited then
      notes[pinfo.number] = look_for_gaps(pinfo, tvb, kind, index, seq, length)
    end
    if notes[pinfo.number] then text = text .. add_note(notes[pinfo.number], tree) end
  end
  tree:append_text("," .. text)
  add_text(pinfo, text)
end

-- The strings of the key exchange, with which a connection of layout 2021 begins: u32 length, string.
local function dissect_key(tvb, pinfo, root, is_offer)
  local tree = root:add(fmtp, tvb(), is_offer and "FMTP, receiver's key" or "FMTP, sender's answer to the key")
  tree:add(f.key_length, tvb(0, 4))
  local text = tvb(4)
  if is_offer then
    tree:add(f.key_pem, text)
    local extensions = text:string():match("FMTP%-Extensions: ([^\r\n]*)")
    if extensions then tree:add(f.key_extensions, extensions) end
    add_text(pinfo, " KEY" .. (extensions and " extensions " .. extensions or ""))
  else
    tree:add(f.key_answer, text)
    add_text(pinfo, " KEY_ANSWER")
  end
end

local function looks_like_offer(tvb, at)
  return tvb:len() - at >= HEADER and tvb(at + 4, 8):string() == PEM:sub(1, 8)
end

-- The connection that a packet belongs to, if it began with a key: the latest between these ends
-- that began before the packet.
local function connection_of(pinfo)
  local a, b = tostring(pinfo.src) .. " " .. pinfo.src_port, tostring(pinfo.dst) .. " " .. pinfo.dst_port
  local key = a < b and a .. " " .. b or b .. " " .. a
  local all = connections[key] or {}
  connections[key] = all
  for i = #all, 1, -1 do
    if all[i].begin <= pinfo.number then return all[i], all end
  end
  return nil, all
end

local next_kind -- what the length function found; the dissecting function is called right after it
local function pdu_length(tvb, pinfo, at)
  local known, all = connection_of(pinfo)
  if looks_like_offer(tvb, at) then
    next_kind = "offer"
    if not pinfo.visited and (known == nil or known.answered ~= nil) then
      all[#all + 1] = { begin = pinfo.number, port = pinfo.src_port, answered = nil }
    end
    return 4 + math.min(tvb(at, 4):uint(), MAX_KEY)
  end
  -- The answer is the first message in the other direction.
  if known and pinfo.src_port ~= known.port and at == 0
      and (known.answered == nil or pinfo.number <= known.answered) then
    local length = tvb(at, 4):uint()
    if length <= MAX_KEY then
      next_kind = "answer"
      return math.max(HEADER, 4 + length)
    end
  end
  next_kind = "message"
  local kind = tvb(at + 10, 2):uint()
  if NAMES[kind] == nil then return math.max(HEADER, tvb:len() - at) end -- not in sync
  return HEADER + (BODY_ON_TCP[kind] and tvb(at + 8, 2):uint() or 0)
end

local function dissect_pdu(tvb, pinfo, root)
  if next_kind == "answer" then
    local known = connection_of(pinfo)
    if known and known.answered == nil then known.answered = pinfo.number end
    dissect_key(tvb, pinfo, root, false)
  elseif next_kind == "offer" then
    dissect_key(tvb, pinfo, root, true)
  else
    dissect_message(tvb, pinfo, root, true)
  end
  return tvb:len()
end

-- The heuristics call this as a plain function: a dissector called by another cannot request more
-- of the stream.
local function dissect(tvb, pinfo, root)
  if tvb:len() == 0 then return 0 end
  pinfo.cols.protocol:set("FMTP")
  pinfo.cols.info:set("")
  if pinfo.port_type == 2 then
    dissect_tcp_pdus(tvb, root, HEADER, pdu_length, dissect_pdu)
  else
    dissect_message(tvb, pinfo, root, false)
  end
  return tvb:len()
end
fmtp.dissector = dissect

-- Does it look like a message? Its type must fit the transport, its length the datagram.
local function heuristic_udp(tvb, pinfo, root)
  if not fmtp.prefs.heuristic or tvb:len() < HEADER then return false end
  local length, kind = tvb(8, 2):uint(), tvb(10, 2):uint()
  local rest = tvb:len() - HEADER - length
  if not ON_UDP[kind] or not (rest == 0 or MAC_NAMES[rest]) then return false end
  if kind == EOP and (length ~= 0 or tvb(4, 4):uint() ~= 0) then return false end
  if kind == BOP and (tvb(4, 4):uint() ~= 0 or layout_of(tvb, HEADER, length) == nil) then return false end
  if kind ~= EOP and length == 0 then return false end
  dissect(tvb, pinfo, root)
  pinfo.conversation = fmtp
  return true
end

local function heuristic_tcp(tvb, pinfo, root)
  if not fmtp.prefs.heuristic or tvb:len() < HEADER then return false end
  if not looks_like_offer(tvb, 0) then
    local seq, length, kind = tvb(4, 4):uint(), tvb(8, 2):uint(), tvb(10, 2):uint()
    if NAMES[kind] == nil or ON_UDP[kind] then return false end
    local empty = kind == RETX_REJ or kind == BOP_REQ or kind == EOP_REQ or kind == RETX_EOP
    if empty and (seq ~= 0 or length ~= 0) then return false end
    if kind == RETX_END and length ~= 0 then return false end
    if (kind == RETX_REQ or kind == RETX_DATA) and length == 0 then return false end
  elseif tvb(4, math.min(#PEM, tvb:len() - 4)):string() ~= PEM:sub(1, math.min(#PEM, tvb:len() - 4)) then
    return false
  end
  dissect(tvb, pinfo, root)
  pinfo.conversation = fmtp
  return true
end

fmtp:register_heuristic("udp", heuristic_udp)
fmtp:register_heuristic("tcp", heuristic_tcp)

local udp_table, tcp_table = DissectorTable.get("udp.port"), DissectorTable.get("tcp.port")
local by_udp, by_tcp = "", ""
function fmtp.prefs_changed()
  if by_udp ~= "" then udp_table:remove(by_udp, fmtp) end
  if by_tcp ~= "" then tcp_table:remove(by_tcp, fmtp) end
  by_udp, by_tcp = fmtp.prefs.udp_ports, fmtp.prefs.tcp_ports
  if by_udp ~= "" then udp_table:add(by_udp, fmtp) end
  if by_tcp ~= "" then tcp_table:add(by_tcp, fmtp) end
end
-- In every list of "Decode as".
udp_table:add_for_decode_as(fmtp)
tcp_table:add_for_decode_as(fmtp)
