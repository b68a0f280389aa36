# A worker on a released Ockam node: asks other nodes' workers, and answers what it is asked.
#
#     elixir -pa EBIN -pa ... worker.exs
#
# Each line on stdin is a command, each line on stdout its answer:
#
#     listen                     the port that the node listens on from now
#     ask HOP... BYTES           what comes back to a worker that sends BYTES along the route
#     channel HOP... BYTES       the same in a secure channel to SC_listener behind the first hop
#     register HOP...            the alias that a forwarding service makes for the worker "shout"
#
# A hop is host:port or the name of a worker. "shout" answers in capitals. "SC_listener" opens
# secure channels, and "forwarding" is the release's own service where it has been given.

defmodule Shout do
  use Ockam.Worker

  @impl true
  def handle_message(message, state) do
    answer = %{
      onward_route: Ockam.Message.return_route(message),
      return_route: [state.address],
      payload: String.upcase(Ockam.Message.payload(message))
    }

    # What answers the registration of an alias comes here, too.
    case {Ockam.Message.payload(message), Process.whereis(:registering)} do
      {"register", pid} when is_pid(pid) -> send(pid, {:came, message})
      _ -> Ockam.Router.route(answer)
    end

    {:ok, state}
  end
end

defmodule Asker do
  use Ockam.Worker

  @impl true
  def setup(options, state), do: {:ok, Map.put(state, :pid, Keyword.fetch!(options, :pid))}

  @impl true
  def handle_message(message, state) do
    send(state.pid, {:came, message})
    {:ok, state}
  end
end

defmodule Driver do
  @seconds 20

  # Levels differ in how transports and vaults are started; messages and workers are alike.
  def listen do
    port = free_port()
    tcp = Ockam.Transport.TCP

    {:ok, _} =
      if Code.ensure_loaded?(tcp) and function_exported?(tcp, :create_listener, 1),
        do: apply(tcp, :create_listener, [[port: port, route_outgoing: true]]),
        else: apply(tcp, :start, [[listen: [port: port]]])

    to_string(port)
  end

  def ask(words) do
    {route, payload} = Enum.split(words, -1)
    came(Enum.map(route, &hop/1), hd(payload))
  end

  def channel([host | words]) do
    {route, payload} = Enum.split(words, -1)
    came([open(host) | Enum.map(route, &hop/1)], hd(payload))
  end

  def register(words) do
    Process.register(self(), :registering)

    Ockam.Router.route(%{
      onward_route: Enum.map(words, &hop/1),
      return_route: ["shout"],
      payload: "register"
    })

    message = wait()
    Process.unregister(:registering)
    to_string(List.last(Ockam.Message.return_route(message)))
  end

  defp open(host) do
    options = [route: [hop(host), "SC_listener"]] ++ keys()
    {:ok, channel} = apply(Ockam.SecureChannel, :create, [options])
    established(channel, 200)
  end

  defp established(channel, left) when left > 0 do
    if apply(Ockam.SecureChannel, :established?, [channel]) do
      channel
    else
      :timer.sleep(50)
      established(channel, left - 1)
    end
  end

  def keys do
    {:ok, vault} = apply(Ockam.Vault.Software, :init, [])
    {:ok, identity} = apply(Ockam.Vault, :secret_generate, [vault, [type: :curve25519]])
    [vault: vault, identity_keypair: identity]
  end

  defp came(route, payload) do
    {:ok, address} = Asker.create(pid: self())
    Ockam.Router.route(%{onward_route: route, return_route: [address], payload: payload})
    message = wait()
    Ockam.Node.stop(address)
    Ockam.Message.payload(message)
  end

  defp wait do
    receive do
      {:came, message} -> message
    after
      @seconds * 1_000 -> raise "nothing has come back"
    end
  end

  defp hop(text) do
    case String.split(text, ":") do
      [host, port] ->
        {:ok, address} = :inet.parse_address(to_charlist(host))
        Ockam.Transport.TCPAddress.new(address, String.to_integer(port))

      [name] ->
        name
    end
  end

  defp free_port do
    {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
    {:ok, port} = :inet.port(socket)
    :gen_tcp.close(socket)
    port
  end

  def loop do
    case IO.gets("") do
      line when is_binary(line) ->
        [command | words] = String.split(line)

        answer =
          case command do
            "listen" -> listen()
            "ask" -> ask(words)
            "channel" -> channel(words)
            "register" -> register(words)
          end

        IO.puts("= " <> answer)
        loop()

      _closed ->
        :ok
    end
  end
end

Logger.configure(level: :error)

if Code.ensure_loaded?(Ockam.Wire.Binary.V2),
  do: Application.put_env(:ockam, Ockam.Wire, default: Ockam.Wire.Binary.V2)

{:ok, _} = Application.ensure_all_started(:telemetry)
if Code.ensure_loaded?(:ranch), do: {:ok, _} = Application.ensure_all_started(:ranch)
{:ok, _} = Ockam.start(:normal, [])

if Code.ensure_loaded?(Ockam.Transport.TCP) and function_exported?(Ockam.Transport.TCP, :start, 1),
  do: apply(Ockam.Transport.TCP, :start, [[]])

{:ok, "shout"} = Shout.create(address: "shout")

for service <- [Ockam.Hub.Service.Forwarding, Ockam.Services.Forwarding],
    Code.ensure_loaded?(service),
    do: {:ok, _} = apply(service, :create, [[address: "forwarding"]])

static = Ockam.Services.StaticForwarding

if Code.ensure_loaded?(static),
  do: {:ok, _} = apply(static, :create, [[address: "static_forwarding", prefix: "forward_to"]])

if Code.ensure_loaded?(Ockam.Vault) and Code.ensure_loaded?(Ockam.Vault.Software),
  do: Ockam.SecureChannel.create_listener([address: "SC_listener"] ++ Driver.keys())

IO.puts("= ready")
Driver.loop()
