import java.util.List;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.security.AuthenticationUser;
import org.apache.activemq.security.SimpleAuthenticationPlugin;

/** Runs ActiveMQ Classic in memory, with AMQP at one address and one account: java Classic HOST:PORT USER PASSWORD. */
class Classic {
    public static void main(String[] given) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("classic");
        broker.setPersistent(false);
        broker.setUseJmx(false);
        broker.setUseShutdownHook(false);
        AuthenticationUser account = new AuthenticationUser(given[1], given[2], "everybody");
        broker.setPlugins(new BrokerPlugin[] {new SimpleAuthenticationPlugin(List.of(account))});
        broker.addConnector("amqp://" + given[0]);
        broker.start();
        broker.waitUntilStopped();
    }
}
